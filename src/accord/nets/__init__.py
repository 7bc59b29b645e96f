"""Encoders, and the heads on top of them."""
