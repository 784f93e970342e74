"""Parsers that read tokens into statements."""
