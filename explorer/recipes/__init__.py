"""Recipes as plain values, and the one place where a run is wired."""
