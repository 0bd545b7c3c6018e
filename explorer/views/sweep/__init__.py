"""Sweep notebook, and the notebook of one run: start a sweep, follow it, and show a run."""
