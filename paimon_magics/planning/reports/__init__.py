"""What reports show beside rows: the queries that give them, and findings about health."""
