"""Where a claim that names no host may go: cached nodes, the ledger's checks, weights."""
