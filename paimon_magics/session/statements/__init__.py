"""Statements that define, describe and explain."""
