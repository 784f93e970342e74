"""The catalog: databases and tables of a warehouse."""
