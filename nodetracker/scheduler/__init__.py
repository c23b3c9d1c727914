"""Find nodes for claims without a host: cached nodes, the ledger's checks, weights."""
