"""Methods: what a federation does from round to round. One file each; the registry finds them."""

from accord.methods.base import Method, methods

__all__ = ["Method", "methods"]
