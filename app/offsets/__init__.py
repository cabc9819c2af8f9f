"""Where the next offset of each partition is remembered: one contract, one file for each store."""
