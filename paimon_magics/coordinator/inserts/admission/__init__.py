"""Validation of inserts before they enter a queue."""
