"""Sharded data: examples in many files, which are read while a run trains."""
