"""Committed offsets and their expiration."""
