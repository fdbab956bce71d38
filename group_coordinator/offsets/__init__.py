"""Committed offsets, and when they are forgotten."""
