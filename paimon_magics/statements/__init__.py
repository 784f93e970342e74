"""Parses text into Statement values, which say what the user asked for. Pure."""
