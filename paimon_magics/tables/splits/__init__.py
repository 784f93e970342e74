"""The files that a read needs, and the splits that tasks get of them."""
