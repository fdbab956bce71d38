"""The rows: one module for each kind of work, each with its `ROWS`."""
