"""The coordinator: transactions, commits and upkeep of a warehouse's tables."""
