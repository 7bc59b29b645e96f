"""What a trial's uploads are worth: what is to be measured, by which jobs, with which result."""

from accord.federation.measuring.measuring import Measuring

__all__ = ["Measuring"]
