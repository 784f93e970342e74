"""Plans reads: which state and which files of a table are read, and how."""
