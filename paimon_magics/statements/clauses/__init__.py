"""Clauses that several statements share: table names, properties, partitions."""
