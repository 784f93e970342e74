"""Who commits: the interface that sessions use, and the committer inside their process."""
