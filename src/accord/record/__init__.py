"""The record: the run directory with everything a report, a resume or a stranger needs."""
