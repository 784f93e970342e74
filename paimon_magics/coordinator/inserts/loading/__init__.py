"""Loading a batch of the log into its table."""
