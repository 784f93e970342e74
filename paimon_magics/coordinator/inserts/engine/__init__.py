"""The threads that drive queues, log and loading."""
