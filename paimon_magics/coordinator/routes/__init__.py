"""The routes of the coordinator's own HTTP interface."""
