"""Plans → Spark jobs: sessions, scans, writers. The only importer of PySpark."""
