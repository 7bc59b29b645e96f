"""Kinds of evidence about clients, one file each."""

from accord.auditing.kinds.base import Case, Kind, kinds

__all__ = ["Case", "Kind", "kinds"]
