"""The project's ledger, `runs/_audit`: it goes on when the ledgers of runs are closed, and points to them."""
