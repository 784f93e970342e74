"""The routes of the coordinator's own interface."""
