"""Data types and their texts."""
