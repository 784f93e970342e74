"""Rows of an append table that a statement changes: their files, and how these files change."""
