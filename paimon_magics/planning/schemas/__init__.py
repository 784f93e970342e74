"""The schema of a table as a value, what changes it, and what Paimon refuses in one."""
