"""Trackers, one per file: they copy the finished trials of a record to another tool."""

from accord.trackers.base import Tracker, trackers

__all__ = ["Tracker", "trackers"]
