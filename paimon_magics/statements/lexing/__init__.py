"""Text → tokens, and steps through them."""
