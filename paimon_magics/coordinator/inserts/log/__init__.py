"""The durable log of acknowledged inserts."""
