"""Splits text into tokens, and steps through them."""
