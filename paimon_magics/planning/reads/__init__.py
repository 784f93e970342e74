"""Which state and which files a read is about, and how they are read."""
