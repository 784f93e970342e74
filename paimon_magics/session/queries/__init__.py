"""What a query reads: names, frames, time travel, rows that are not loaded yet."""
