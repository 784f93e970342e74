"""The rows of system tables that are made of metadata."""
