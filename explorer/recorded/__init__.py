"""What a run's ledger says, read: steps, segments, tables, the state at the end, and what each class reached. No torch."""
