"""What a query reads: names, frames, time travel, and rows that are not loaded yet."""
