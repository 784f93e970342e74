"""Manifest lists, manifests and their entries: which data files a snapshot has."""
