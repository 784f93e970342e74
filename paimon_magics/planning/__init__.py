"""Statements and facts about a table → what to do, as values. Pure."""
