"""Decisions of security: names and principals, key stores, SASL mechanisms, ACLs. Nothing here does I/O."""
