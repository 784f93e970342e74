"""Removes old snapshots, changelogs and tags, and the files that only they need."""
