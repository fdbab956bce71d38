"""Where the metrics of brokers are: brokers of Moldau name their listeners in their settings."""

from __future__ import annotations

from typing import Final, NamedTuple

import click

from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.metadata import MetadataRequest
from ..client import parse_addresses
from ..cluster import Cluster
from ..loopback import is_loopback
from .endpoint import Address

_LISTENER: Final = "moldau.metrics.listener"
_NO_METRICS: Final = (
    "no broker names an endpoint of metrics: start Moldau with `moldau serve --metrics 127.0.0.1:9404`, "
    "or Apache Kafka with the JMX exporter and --metrics HOST:PORT here"
)
_NOT_ALLOWED: Final = (
    "the server does not show its settings to this user (CLUSTER_AUTHORIZATION_FAILED), so the endpoints of metrics "
    "are unknown: add an ACL for describe-configs on the cluster, or give --metrics HOST:PORT"
)
_BROKER: Final = 4


class Discovery(NamedTuple):
    """The endpoints that were found, and why others were not."""

    addresses: list[Address]
    missing: list[str]


def address_of(text: str) -> Address:
    """The address of an option ``--metrics``. Raises BadParameter."""
    try:
        (found,) = parse_addresses(text)
        if not text.rpartition(":")[1] or text.endswith("]"):
            raise ValueError
    except (click.BadParameter, ValueError):
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--metrics") from None
    return Address(*found)


def discover(cluster: Cluster) -> Discovery:
    """The endpoints that the brokers of a cluster name. Raises PeerError if a broker does not respond."""
    addresses: list[Address] = []
    missing: list[str] = []
    brokers = {each.node_id: each.host for each in cluster.ask(MetadataRequest(topics=[])).brokers}
    silent = []
    for node_id in cluster.broker_ids():
        try:
            listener = _listener_of(cluster, node_id)
        except _NotAllowedError:
            return Discovery([], [_NOT_ALLOWED])  # the ACLs are the same on each broker
        if listener is None:
            silent.append(node_id)
            continue
        host, _, port = listener.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if host in ("", "0.0.0.0", "::"):
            host = brokers.get(node_id, cluster.bootstrap.host)
        if port == "0":
            missing.append(f"broker {node_id} serves metrics on a port that it chose; its log names it: give --metrics")
        elif is_loopback(host) and not is_loopback(brokers.get(node_id, cluster.bootstrap.host)):
            missing.append(f"broker {node_id} serves metrics at {listener}, only to its own machine")
        else:
            addresses.append(Address(host, int(port)))
    if len(silent) == len(brokers):
        missing.append(_NO_METRICS)
    elif silent:
        missing.append(f"brokers without a known endpoint of metrics: {', '.join(map(str, silent))}")
    return Discovery(addresses, missing)


class _NotAllowedError(Exception):
    """The user may not read the settings of brokers."""


def _listener_of(cluster: Cluster, node_id: int) -> str | None:
    """The setting of a broker of Moldau; None for others. Raises _NotAllowedError."""
    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(node_id), configuration_keys=[_LISTENER]
    )
    for result in cluster.ask_broker(node_id, DescribeConfigsRequest(resources=[resource])).results:
        if result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise _NotAllowedError
        for entry in result.configs:
            if entry.name == _LISTENER and entry.value:
                return str(entry.value)
    return None
