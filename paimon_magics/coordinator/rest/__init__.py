"""Paimon's REST catalog, served for other engines."""
