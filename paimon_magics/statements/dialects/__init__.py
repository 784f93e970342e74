"""What other databases write, and what is written here. Data, and lookups."""
