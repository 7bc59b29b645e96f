"""What a user asks for: studies, recipes, and their checks."""
