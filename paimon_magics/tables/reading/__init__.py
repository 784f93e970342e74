"""Reading data files: rows of a split as Arrow batches."""
