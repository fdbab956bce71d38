"""Groups whose members move between the classic and the consumer protocol, one by one (KIP-848)."""
