"""Types and columns of tables, their schema files, and casting rows to their Arrow types."""
