"""Credentialed reading: what a grant opens of a run, and one file that an auditor opens offline. No torch."""
