"""A coordinator's process: its parts, the order in which they start, and how it ends."""
