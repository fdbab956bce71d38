"""The settings of the transaction coordinator, which the server creates from the broker's settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Each field is the broker's setting of that name; times are in milliseconds."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_two_phase_commit_enable: bool = False
    # Apache Kafka checks for expired transactions at these intervals. Here each has a deadline; the interval is the
    # time until a rejected change is retried.
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
