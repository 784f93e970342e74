"""Commits, publications, expiry and procedures, as values."""
