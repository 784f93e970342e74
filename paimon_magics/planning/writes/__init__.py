"""What an INSERT does to a table, and which task writes which rows."""
