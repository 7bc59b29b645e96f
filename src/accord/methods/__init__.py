"""Methods: what the server does in each round. A registry finds them; each has its own file."""

from accord.methods.base import Method, methods

__all__ = ["Method", "methods"]
