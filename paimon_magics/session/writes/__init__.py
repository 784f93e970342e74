"""What every write passes: plan, check, write, commit, and what is shown of it."""
