"""Sweeps over commands and notebooks of the user's: their grammar, identity, process and reports."""
