"""A rehearsal: a little of each kind of work of a study, to estimate the cost of all of it."""
