"""Which files a read needs, and how they are shared among tasks."""
