"""Sections of the explorer, of which one is open below the chart."""
