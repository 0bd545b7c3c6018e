"""Ledger of a governed run in a notebook: a file for each section, and the charts that sections share."""
