"""The schema of a table as a value: how it is made and changed, and what Paimon refuses."""
