"""Who commits: the coordinator of a warehouse as a process, its clients, and the committer inside a
session's own process."""
