"""The coordinator of a warehouse, which publishes its commits: the process, its clients, and the
committer inside a session's own process."""
