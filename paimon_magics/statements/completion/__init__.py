"""Completion: what may follow at a place in an unfinished cell."""
