"""Rows of an append table that a statement changes: the files they are in, and what becomes of
those."""
