"""Clauses that many statements share: names of tables, properties, partitions."""
