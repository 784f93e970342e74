"""The contents of reports besides rows: their queries, and findings about health."""
