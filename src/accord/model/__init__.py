"""A fused model that a user keeps: saved, loaded, asked and exported."""
