"""What a run's ledger says, read: steps, segments, tables, the final state, what each class reached. No torch."""
