"""Where the steps meet: a Session runs one statement and returns one Outcome."""
