"""The transaction coordinator: producer IDs and the state of transactions, decided without I/O. See `shard`."""
