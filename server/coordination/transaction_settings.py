"""The settings of the transaction coordinator, from the broker's settings."""

from __future__ import annotations

from ...config.broker_config import BrokerConfig
from ...transaction_coordinator.config import TransactionConfig


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    """The settings of all transactions; none of them is dynamic."""
    return TransactionConfig(
        transaction_max_timeout_ms=config.int("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=config.int("transactional.id.expiration.ms"),
        transaction_two_phase_commit_enable=config.bool("transaction.two.phase.commit.enable"),
        transaction_abort_timed_out_transaction_cleanup_interval_ms=config.int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        transaction_remove_expired_transaction_cleanup_interval_ms=config.int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
    )
