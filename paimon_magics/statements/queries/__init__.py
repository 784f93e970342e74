"""Queries inside statements: their relations, parameters, filters and columns."""
