"""Reads and writes data types as text."""
