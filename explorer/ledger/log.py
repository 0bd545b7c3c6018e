"""The writer of a ledger."""
