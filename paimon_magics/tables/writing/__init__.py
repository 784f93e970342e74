"""Writing data files: what a task does with rows, and what it hands to the commit."""
