"""The ledger: an append-only Merkle log over a directory, which does not know what an entry means."""
