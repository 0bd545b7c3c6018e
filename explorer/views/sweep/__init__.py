"""The sweep notebook, and the notebook of one run: what starts a sweep, what follows it, and what a run shows."""
