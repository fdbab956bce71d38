"""The state of a shard: its transactions, their deadlines, and its sources of ids and features.

The modules of the requests decide with this value; it contains no rules.
"""

from __future__ import annotations

from collections.abc import Callable

from ..coordinator.deadlines import Deadlines
from .config import TransactionConfig
from .transaction import Transaction


class TransactionStates:
    """The state of one shard."""

    def __init__(
        self,
        config: TransactionConfig,
        *,
        new_producer_id: Callable[[], int],
        transaction_version: Callable[[], int],
    ) -> None:
        """``new_producer_id`` returns an unused id, or raises a KafkaError; ``transaction_version`` returns the
        finalized level of the feature."""
        self.config = config
        self.new_producer_id = new_producer_id
        self.transaction_version = transaction_version
        self.deadlines = Deadlines()
        self.transactions: dict[str, Transaction] = {}
