"""How far Spark jobs are."""
