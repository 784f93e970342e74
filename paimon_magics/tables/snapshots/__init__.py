"""Snapshots, tags, branches and consumers: the states of a table."""
