"""Sweeps whose later runs follow from earlier results: more seeds, tuning, search. `explorer.search` decides."""
