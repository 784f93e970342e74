"""Compaction of a table's files: which are rewritten, the rewriting in tasks, and its messages."""
