"""Databases and tables of a warehouse."""
