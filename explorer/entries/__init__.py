"""What the entries of a ledger mean: their kinds, as frozen, versioned records with published schemas."""
