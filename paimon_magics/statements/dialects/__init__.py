"""SQL of other databases, and what to write instead here. Data, and lookups."""
