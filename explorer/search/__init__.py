"""Which runs come next, and when there are enough: decisions from results only, without training anything."""
