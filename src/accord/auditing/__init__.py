"""Which clients of a trial stand out by what they have sent, one file per kind of evidence."""
