"""Manifest lists, manifests and their entries: the data files of a snapshot."""
