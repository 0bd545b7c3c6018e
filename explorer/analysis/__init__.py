"""Pure functions on tables of results: tradeoff curves, fronts, time and cost at equal quality."""
