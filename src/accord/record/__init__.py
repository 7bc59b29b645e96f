"""The record: the run directory, with everything that a report or a resumed run needs."""
