"""The common part of all coordinators: decide, append, replay, reply. See `runtime`."""
