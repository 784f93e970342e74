"""Plans INSERT: where columns get their values, and which task writes which rows."""
