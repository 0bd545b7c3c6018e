"""Which runs come next, and when there are enough: decisions from results alone, without training anything."""
