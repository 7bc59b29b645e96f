"""The live view of a study: what it shows, where it reads it, and how it fits into a terminal."""
