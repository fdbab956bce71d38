"""Partitions as a broker serves them: leadership, the high watermark, and who waits for it."""
