"""What is shown of tables and of the coordinator: layout, health, files, changes."""
