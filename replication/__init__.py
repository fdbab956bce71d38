"""Partitions served by a broker: leadership, in-sync replicas, the high watermark, and waiting requests."""
