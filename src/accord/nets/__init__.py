"""Encoders, and the heads that sit on them."""
