"""Queries inside statements: relations, parameters, filters, columns."""
