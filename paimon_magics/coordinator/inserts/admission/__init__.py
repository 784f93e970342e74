"""What is checked of an insert before it is let in."""
