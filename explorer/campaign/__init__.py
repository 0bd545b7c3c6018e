"""Sweeps whose later runs follow from earlier results: more seeds, tuning, search. Decisions are in `explorer.search`."""
