"""Consumer groups: the coordinator assigns (KIP-848)."""
