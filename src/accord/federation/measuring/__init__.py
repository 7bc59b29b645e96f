"""The measuring of a trial's uploads: what must be measured, the jobs, and their results."""

from accord.federation.measuring.measuring import Measuring

__all__ = ["Measuring"]
