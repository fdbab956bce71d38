"""The scenarios, by area."""
