"""Moldau: a Kafka wire-protocol-compatible server in Python.

The repository's root is this package (see docs/architecture.md): ``protocol`` knows bytes, ``log`` stores them,
``metadata`` and ``replication`` decide, ``server`` talks to the world.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from .dataframes import read_topic

__all__ = ["__version__", "read_topic"]


def __getattr__(name: str) -> object:
    """Load `read_topic` on first use: a server starts without it."""
    if name == "read_topic":
        from .dataframes import read_topic

        return read_topic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
