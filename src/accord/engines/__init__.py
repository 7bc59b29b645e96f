"""The engines, which run the jobs of a federation."""
