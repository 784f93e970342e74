"""Plans INSERT: the sources of column values, and the distribution of rows to tasks."""
