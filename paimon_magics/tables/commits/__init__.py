"""Publishing snapshots: conflicts, checks, and what becomes of a commit that is disturbed."""
