"""Loading the log's batches into their tables."""
