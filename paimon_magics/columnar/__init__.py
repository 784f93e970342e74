"""Kernels over Arrow columns: bucket hashes, merging and folding rows of one key, casts as Java's,
deletion vectors, footers and bounds of files. pyarrow and numpy only; nothing is opened here.
"""
