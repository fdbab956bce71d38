"""``moldau cluster``: a cluster's description of itself.

Kafka's protocol has no request for a server's version. The finalized ``metadata.version`` comes closest: it is the
release whose records and features the whole cluster uses. Every other fact comes from a separate request, which older
or other servers may not support; a missing fact is shown as unknown.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import click
from click.core import ParameterSource

from ..protocol.api import ApiKey
from ..protocol.messages.api_versions import ApiVersionsResponse
from ..protocol.messages.describe_cluster import DescribeClusterRequest
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    Node,
    PartitionData,
    ResponsePartitionData,
    TopicData,
)
from ..protocol.messages.metadata import MetadataRequest
from .broker_directories import directories_of
from .client import bootstrap_option
from .cluster import Cluster, cluster
from .connection import PeerError
from .drain_broker import command as drain
from .failure import Failure
from .output import print_json, print_table
from .partition_states import (
    AT_MIN_ISR,
    BELOW_MIN_ISR,
    OFFLINE,
    STATES,
    UNDER_REPLICATED,
    as_json,
    most_urgent_first,
    moves_of,
    partitions_of,
)
from .suggestions import CommandGroup

_METADATA_VERSION: Final = "metadata.version"

# Levels of metadata.version by release, starting at the first production KRaft release (3.3-IV3).
_FIRST_LEVEL: Final = 7
_LEVELS: Final = (
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1",
    "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0",
    "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0", "4.4-IV0",
)  # fmt: skip

# Only Moldau has a setting with this name.
_OWN_SETTING: Final = "moldau.validate.records"
_BROKER: Final = 4
_FENCED_SINCE: Final = 2


@click.group(
    "cluster",
    cls=CommandGroup,
    invoke_without_command=True,
    short_help="Show id, version, controller, features and brokers; drain a broker.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@bootstrap_option
@click.pass_context
def command(context: click.Context, as_json: bool, bootstrap_server: str) -> None:
    """Show the id, version, features, brokers and controllers of a cluster, and what needs attention.

    For each broker: its replicas, how many of them it leads or has not in sync, how many records of the metadata log it
    lacks, and its log directories. Below: partitions that are offline, under-replicated, or at their
    min.insync.replicas, and reassignments in progress.

    \b
    Examples:
      moldau cluster
      moldau cluster --json --bootstrap-server kafka.example:9092
      moldau cluster drain 3 --dry-run
    """
    if context.invoked_subcommand is not None:
        given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if given:
            raise click.UsageError(f"Options of {context.invoked_subcommand} must follow its name.", context)
        return
    with cluster(bootstrap_server) as servers:
        described = describe(servers)
    if as_json:
        print_json(described)
    else:
        show(described)


command.add_command(drain)


def describe(servers: Cluster) -> dict[str, Any]:
    """The cluster's description; None for facts that it does not report."""
    features = _features(servers.bootstrap.greeting)
    level = features.get(_METADATA_VERSION, {}).get("finalized")
    cluster_id, controller, brokers = _members(servers)
    quorum, nodes = _quorum(servers)
    moves = moves_of(servers)
    topics = servers.topics(None)
    partitions = partitions_of(servers, topics, moves or ())
    led = Counter(partition.leader for partition in partitions)
    held = Counter(replica for partition in partitions for replica in partition.replicas)
    in_sync = Counter(replica for partition in partitions for replica in partition.isr)
    for broker in brokers:
        broker_id = broker["id"]
        broker["leaders"] = led[broker_id]
        broker["replicas"] = held[broker_id]
        broker["not_in_sync"] = held[broker_id] - in_sync[broker_id]
        broker["metadata_lag"] = None if quorum is None else _lag(quorum, broker_id)
        broker["responds"] = None if broker["fenced"] else _responds(servers, broker_id)
        broker["directories"] = directories_of(servers, broker_id) if broker["responds"] else None
    states = Counter(state for partition in partitions for state in partition.states)
    return {
        "cluster_id": cluster_id,
        "software": _software(servers, brokers),
        "version": release(level),
        "controller": _controller(servers, quorum, controller),
        "controller_responds": servers.controller_responds,
        "features": features,
        "topics": sum(not topic.is_internal for topic in topics),
        "partitions": len(partitions),
        "partitions_without_leader": states[OFFLINE],
        "under_replicated": states[UNDER_REPLICATED],
        "at_min_isr": states[AT_MIN_ISR],
        "below_min_isr": states[BELOW_MIN_ISR],
        "problems": [as_json(partition) for partition in most_urgent_first(partitions)],
        "reassignments": None if moves is None else [move._asdict() for move in moves],
        "controllers": None if quorum is None else _controllers(quorum, nodes, {broker["id"] for broker in brokers}),
        "brokers": brokers,
    }


def _controller(servers: Cluster, quorum: ResponsePartitionData | None, reported: int | None) -> int | None:
    """``reported`` is the controller for clients, which may be any broker."""
    if not servers.controller_responds:
        return None
    return reported if quorum is None else _id(quorum.leader_id)


def _responds(servers: Cluster, broker_id: int) -> bool:
    """Whether the broker accepts a connection. The controller may not have noticed its end yet."""
    try:
        servers.broker(broker_id)
    except (PeerError, Failure):
        return False
    return True


def release(level: int | None) -> str | None:
    """The release of a metadata.version level; None if unknown."""
    known = level is not None and 0 <= level - _FIRST_LEVEL < len(_LEVELS)
    return _LEVELS[level - _FIRST_LEVEL] if level is not None and known else None


def _features(greeting: ApiVersionsResponse) -> dict[str, dict[str, int | None]]:
    """Finalized and supported levels by feature; a feature that is not finalized has level 0."""
    finalized = {feature.name: feature.max_version_level for feature in greeting.finalized_features}
    supported = {feature.name: feature for feature in greeting.supported_features}
    is_known = greeting.finalized_features_epoch >= 0
    return {
        name: {
            "finalized": finalized.get(name, 0 if is_known else None),
            "lowest_supported": supported[name].min_version if name in supported else None,
            "highest_supported": supported[name].max_version if name in supported else None,
        }
        for name in sorted({*finalized, *supported})
    }


def _members(servers: Cluster) -> tuple[str | None, int | None, list[dict[str, Any]]]:
    """Cluster id, controller and brokers. DescribeCluster includes fenced brokers, Metadata does not."""
    connection = servers.bootstrap
    if connection.offers(ApiKey.DESCRIBE_CLUSTER):
        include_fenced = connection.version_of(DescribeClusterRequest) >= _FENCED_SINCE
        answer = servers.ask(DescribeClusterRequest(include_fenced_brokers=include_fenced))
        if not answer.error_code:
            brokers = [
                _broker(each.broker_id, each, each.is_fenced if include_fenced else None) for each in answer.brokers
            ]
            return answer.cluster_id, _id(answer.controller_id), brokers
    metadata = servers.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    brokers = [_broker(each.node_id, each, None) for each in metadata.brokers]
    return metadata.cluster_id, _id(metadata.controller_id), brokers


def _broker(broker_id: int, broker: Any, fenced: bool | None) -> dict[str, Any]:
    return {"id": broker_id, "host": broker.host, "port": broker.port, "rack": broker.rack, "fenced": fenced}


def _id(node_id: int) -> int | None:
    return node_id if node_id >= 0 else None


def _quorum(servers: Cluster) -> tuple[ResponsePartitionData | None, list[Node]]:
    """The state of the metadata log, and the addresses of the controllers.

    To clients, KRaft brokers report any broker as the controller, which forwards.
    """
    if not servers.bootstrap.offers(ApiKey.DESCRIBE_QUORUM):
        return None, []
    topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    answer = servers.ask_controller(DescribeQuorumRequest(topics=[topic]))
    if answer is None or answer.error_code:
        return None, []
    for described in answer.topics:
        for partition in described.partitions:
            if not partition.error_code:
                assert isinstance(partition, ResponsePartitionData)
                return partition, answer.nodes
    return None, []


def _controllers(quorum: ResponsePartitionData, nodes: list[Node], brokers: set[int]) -> list[dict[str, Any]]:
    """The voters of the metadata log. One that is also a broker has both roles."""
    listeners = {node.node_id: node.listeners[0] for node in nodes if node.listeners}
    found = []
    for voter in sorted(quorum.current_voters, key=lambda voter: voter.replica_id):
        listener = listeners.get(voter.replica_id)
        found.append(
            {
                "id": voter.replica_id,
                "host": listener.host if listener else None,
                "port": listener.port if listener else None,
                "state": "active" if voter.replica_id == quorum.leader_id else "standby",
                "metadata_lag": _lag(quorum, voter.replica_id),
                "is_broker": voter.replica_id in brokers,
            }
        )
    return found


def _lag(quorum: ResponsePartitionData, broker_id: int) -> int | None:
    """How many records of the metadata log the broker lacks; None for one that does not fetch it."""
    ends = {each.replica_id: each.log_end_offset for each in (*quorum.observers, *quorum.current_voters)}
    if broker_id not in ends or quorum.leader_id not in ends:
        return None
    return max(0, ends[quorum.leader_id] - ends[broker_id])


def _software(servers: Cluster, brokers: list[dict[str, Any]]) -> str | None:
    """``Moldau`` if the cluster runs it, else None."""
    running = [broker["id"] for broker in brokers if broker["responds"]]
    if not running or not servers.bootstrap.offers(ApiKey.DESCRIBE_CONFIGS):
        return None
    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(running[0]), configuration_keys=[_OWN_SETTING]
    )
    try:
        (result,) = servers.ask_broker(running[0], DescribeConfigsRequest(resources=[resource])).results
    except PeerError:
        return None
    return "Moldau" if any(config.name == _OWN_SETTING for config in result.configs) else None


def show(described: dict[str, Any]) -> None:
    """Print a description as text."""
    level = described["features"].get(_METADATA_VERSION, {}).get("finalized")
    version = described["version"] or "unknown"
    if level is None:
        version += " (the server does not report a metadata.version)"
    else:
        version += f" (metadata.version {level}; Kafka's protocol does not report the server's own version)"
    print(f"cluster id  {_or_unknown(described['cluster_id'])}")
    print(f"software    {described['software'] or 'unknown: not Moldau, or its settings are not readable'}")
    print(f"version     {version}")
    print(f"controller  {_or_unknown(described['controller']) if described['controller_responds'] else _NO_CONTROLLER}")
    print()
    if described["features"]:
        rows = [
            (name, _or_unknown(feature["finalized"]), _range(feature))
            for name, feature in described["features"].items()
        ]
        print_table(("feature", "level", "supported"), rows)
    else:
        print("The server reports no features.")
    print()
    controllers = {each["id"]: each for each in described["controllers"] or ()}
    brokers = [
        (
            broker["id"],
            broker["host"],
            broker["port"],
            broker["rack"],
            "broker, controller" if broker["id"] in controllers else "broker",
            _state(broker),
            broker["leaders"],
            broker["replicas"],
            broker["not_in_sync"],
            _or_unknown(broker["metadata_lag"]),
        )
        for broker in described["brokers"]
    ]
    columns = ("broker", "host", "port", "rack", "roles", "state", "leaders", "replicas", "not in sync", "metadata lag")
    print_table(columns, brokers)
    _show_controllers(list(controllers.values()))
    _show_directories(described["brokers"])
    _show_problems(described)
    _show_unnoticed(described["brokers"])
    _show_moves(described["reassignments"] or [])


def _show_controllers(controllers: list[dict[str, Any]]) -> None:
    """Unless the only one is also a broker."""
    if len(controllers) == 1 and controllers[0]["is_broker"]:
        return
    rows = [(each["id"], each["host"], each["port"], each["state"], each["metadata_lag"]) for each in controllers]
    if rows:
        print()
        print_table(("controller", "host", "port", "state", "metadata lag"), rows)


def _show_directories(brokers: list[dict[str, Any]]) -> None:
    rows = [
        (broker["id"], each["path"], each["state"], _share(each["free_bytes"], each["disk_bytes"]))
        for broker in brokers
        for each in broker["directories"] or ()
    ]
    if rows:
        print()
        print_table(("broker", "log directory", "state", "free"), rows)


def _share(free: int | None, total: int | None) -> str:
    return "unknown" if free is None or not total else f"{free / 2**30:.1f} GiB ({100 * free // total} %)"


def _show_problems(described: dict[str, Any]) -> None:
    print()
    problems = described["problems"]
    if not problems:
        print(f"{described['partitions']} partitions, all with a leader and in sync")
        return
    counts = Counter(state for problem in problems for state in problem["states"])
    named = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    print(f"{described['partitions']} partitions: {named}")
    print()
    rows = [
        (
            each["topic"],
            each["partition"],
            each["leader"] if each["leader"] >= 0 else "none",
            _list(each["replicas"]),
            _list(each["isr"]),
            _or_unknown(each["min_isr"]),
            ", ".join(each["states"]),
        )
        for each in problems[:_SHOWN]
    ]
    print_table(("topic", "partition", "leader", "replicas", "in sync", "min ISR", "states"), rows)
    if len(problems) > _SHOWN:
        print(f"{len(problems) - _SHOWN} more: --json has all of them")


def _show_unnoticed(brokers: list[dict[str, Any]]) -> None:
    """Brokers that the metadata still have as leaders and in sync, because the controller has not fenced them."""
    for broker in brokers:
        if broker["responds"] is False:
            in_sync = broker["replicas"] - broker["not_in_sync"]
            print()
            print(
                f"Broker {broker['id']} does not respond, which the states above do not consider. It leads "
                f"{_partitions(broker['leaders'])}, which cannot be written or read. It counts as in sync in "
                f"{_partitions(in_sync)}: producers with acks=all wait for it, until the controller has fenced it."
            )


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _show_moves(moves: list[dict[str, Any]]) -> None:
    if moves:
        print()
        rows = [
            (each["topic"], each["partition"], _list(each["replicas"]), _list(each["adding"]), _list(each["removing"]))
            for each in moves[:_SHOWN]
        ]
        print_table(("reassignment of", "partition", "replicas", "adding", "removing"), rows)
        if len(moves) > _SHOWN:
            print(f"{len(moves) - _SHOWN} more: --json has all of them")


def _list(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


_SHOWN: Final = 20
"""The maximum number of rows with partitions."""

_NO_CONTROLLER: Final = "does not respond: until it does, no leader is elected and nothing in the metadata changes"


def _state(broker: dict[str, Any]) -> str:
    if broker["fenced"]:
        return "fenced"
    return "active" if broker["responds"] else "no response"


def _or_unknown(value: object) -> object:
    return "unknown" if value is None else value


def _range(feature: dict[str, int | None]) -> str:
    lowest, highest = feature["lowest_supported"], feature["highest_supported"]
    return "unknown" if lowest is None else str(lowest) if lowest == highest else f"{lowest}-{highest}"
