"""Market data: readers, the one cleaning stage, the synthetic market and the cache."""
