"""The coordinator: transactions, commits and upkeep of the tables of a warehouse."""
