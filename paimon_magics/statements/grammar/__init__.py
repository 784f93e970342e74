"""Tokens → statements."""
