"""What every coordinator has in common: decide, append, replay, reply. See `runtime`."""
