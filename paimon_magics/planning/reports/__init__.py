"""What stands beside reports: the queries that give their rows, health in words."""
