"""Feature skew made from any dataset: each client sees its images in its own way, one file each."""

from accord.data.shifts.base import Holder, Shift, shifts

__all__ = ["Holder", "Shift", "shifts"]
