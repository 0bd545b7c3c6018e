"""Datasets, the order in which their examples are read, and the random streams that everything draws from."""
