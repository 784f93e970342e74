"""Kernels over Arrow columns: bucket hashes, merging and folding rows of one key, Java's casts,
deletion vectors, footers and bounds of files. They use pyarrow and numpy, and open no files.
"""
