"""Which process owns a warehouse, and what belongs to that process alone."""
