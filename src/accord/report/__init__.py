"""Tables, progress displays and explanations for the user."""
