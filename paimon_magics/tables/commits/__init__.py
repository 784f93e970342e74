"""Publishing snapshots: conflicts, checks, and recovery of interrupted commits."""
