"""The log directories of the brokers of a cluster: a part of ``moldau cluster``."""

from typing import Any

from ..protocol.api import ApiKey
from ..protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from .cluster import Cluster, error_name
from .connection import PeerError
from .failure import Failure


def directories_of(servers: Cluster, broker_id: int) -> list[dict[str, Any]] | None:
    """The log directories of a broker; None if it does not respond, or does not say."""
    if not servers.bootstrap.offers(ApiKey.DESCRIBE_LOG_DIRS):
        return None
    try:
        response = servers.ask_broker(broker_id, DescribeLogDirsRequest(topics=[]))
    except (PeerError, Failure):
        return None
    if response.error_code:
        return None
    return [
        {
            "path": result.log_dir,
            "state": state_of(result),
            "free_bytes": _known(result.usable_bytes),
            "disk_bytes": _known(result.total_bytes),
        }
        for result in sorted(response.results, key=lambda result: result.log_dir)
    ]


def state_of(result: DescribeLogDirsResult) -> str:
    """``online``, ``cordoned``, or the name of an error."""
    if result.error_code:
        return error_name(result.error_code)
    return "cordoned" if result.is_cordoned else "online"


def _known(size: int) -> int | None:
    return size if size >= 0 else None
