"""Text → Statement values: what the user said, without acting on it. Pure."""
