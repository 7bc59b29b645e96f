"""Kinds of evidence about clients, one file each."""

from accord.audit.kinds.base import Case, Kind, kinds

__all__ = ["Case", "Kind", "kinds"]
