"""Writing data files: how a task processes rows, and the messages that it passes to the commit."""
