"""INSERT and its kin: plan, check, write, commit."""
