"""What may come at a place in an unfinished cell."""
