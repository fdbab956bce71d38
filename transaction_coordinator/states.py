"""Everything that a shard knows: its transactions, their deadlines, the markers to write, and what it may look up.

The modules of the requests decide with this value; it has no rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from ..coordinator.deadlines import Deadlines
from .config import TransactionConfig
from .outbox import Markers, Outbox
from .transaction import Transaction

__all__ = ["Markers", "TransactionStates"]


class TransactionStates:
    """The state of one shard."""

    def __init__(
        self,
        config: TransactionConfig,
        *,
        new_producer_id: Callable[[], int],
        transaction_version: Callable[[], int],
    ) -> None:
        """``new_producer_id`` gives an id that nobody has, or raises a KafkaError; ``transaction_version`` is the
        feature's finalized level."""
        self.config = config
        self.new_producer_id = new_producer_id
        self.transaction_version = transaction_version
        self.deadlines = Deadlines()
        self.transactions: dict[str, Transaction] = {}
        self.outbox = Outbox()
