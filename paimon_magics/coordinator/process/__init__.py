"""A coordinator's process: what it is made of, in which order it begins, and how it ends."""
