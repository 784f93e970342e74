"""COPY INTO: files into a table, and rows into files."""
