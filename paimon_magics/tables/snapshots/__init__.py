"""Snapshots, tags, branches and consumers of a table."""
