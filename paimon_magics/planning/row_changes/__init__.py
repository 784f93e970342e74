"""Plans DELETE and UPDATE: what a table's merge engine allows, and which values rows get."""
