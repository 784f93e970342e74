"""Arrow kernels over columns: bucket hashes. pyarrow and numpy only; nothing is opened here."""
