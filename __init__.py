"""Moldau: a Kafka wire-protocol-compatible server in Python.

The repository's root is this package (see docs/architecture.md): ``protocol`` knows bytes, ``log`` stores them,
``metadata`` and ``replication`` decide, ``server`` talks to the world.
"""

__version__ = "0.1.0.dev0"
