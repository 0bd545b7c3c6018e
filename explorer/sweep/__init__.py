"""Sweeps: many runs from one specification, planned, executed by notebooks, resumed until complete."""
