"""Types and columns of tables, their schema files, and how rows are brought into them."""
