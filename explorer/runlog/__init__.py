"""Readers of a run's ledger and directory: steps, segments, documents, the model's file, influence. No torch."""
