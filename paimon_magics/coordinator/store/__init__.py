"""The database in which a coordinator keeps its transactions."""
