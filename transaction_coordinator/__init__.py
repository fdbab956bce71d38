"""The transaction coordinator: producer ids and the state of transactions, decided without I/O. See `shard`."""
