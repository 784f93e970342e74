"""The progress of Spark jobs."""
