"""The group coordinator: membership, assignments and committed offsets, decided without I/O. See `shard`."""
