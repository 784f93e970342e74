"""Reports on tables and on the coordinator: layout, health, files, changes."""
