"""What to audit, and the errors of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .book import AUDIT_TOPIC


class AuditError(Exception):
    """The books cannot be balanced; the text states the reason and what to do."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Which books to balance. Times are milliseconds since 1970."""

    bootstrap_servers: str
    # None: every topic with counts or with an archive.
    topics: tuple[str, ...] = ()
    audit_topic: str = AUDIT_TOPIC
    # None: the longest window length of all counts.
    window_ms: int | None = None
    # A window is over, and is balanced, this long after its end.
    watermark_ms: int = 600_000
    # Windows that begin before or end after these times are ignored.
    from_ms: int | None = None
    until_ms: int | None = None
    archives: tuple[str, ...] = ()
    # Kafka client settings whose names are the same in Java and librdkafka: "security.protocol", ...
    client: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.window_ms is not None and self.window_ms <= 0:
            raise AuditError("the length of a window must be greater than 0")
        if self.watermark_ms < 0:
            raise AuditError("the watermark must not be less than 0")
        if self.from_ms is not None and self.until_ms is not None and self.from_ms >= self.until_ms:
            raise AuditError("the time range is empty: --from must be before --until")
