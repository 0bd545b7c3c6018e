"""Verbs of the command line on documents, ledgers, deletions, grants and releases."""
