"""What went wrong in a run, why, and what to try: findings from rules that read a record."""
