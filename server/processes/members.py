"""The brokers of `moldau serve --brokers N`: their settings, addresses and directories.

The first broker is also the controller; the others only have the broker role. The first one has the directory that a
single server would have, with the metadata of the cluster, so a single server can get more brokers later. The others
have subdirectories of it: `brokers/2`, `brokers/3`, named by their `node.id`. So one directory, for example the volume
of a container, contains the whole cluster.

The topics of coordinators have three replicas, or as many as there are brokers, unless the configuration has other
numbers. So groups and transactions survive the crash of a broker.

The first broker listens on the configured addresses. The others listen on the following ports of the same hosts, or on
free ones if a port is in use. The controller listens on a free port of the loopback interface, unless `listeners` has
an address for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ...config.broker_config import Listener, StaticValue
from ...config.definition import ConfigError
from ...log.checkpoints import META_PROPERTIES, decode_properties
from ...protocol.uuid import random_uuid, uuid_to_str
from ..storage.formatting import format_directories
from ..storage.ownership import BROKERS_FOLDER, with_node_id_of

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig
    from ...log.files import FileSystem

MAX_BROKERS: Final = 64
"""More processes than this are a mistake: one broker uses one core."""

_LOOPBACK: Final = "127.0.0.1"

_REPLICAS: Final = 3
"""The default of Apache Kafka for the topics of coordinators."""

FreePort = Callable[[str, int], int]
"""See `FreePorts`."""


class Member(NamedTuple):
    """One of the brokers."""

    node_id: int
    log_dirs: tuple[str, ...]
    settings: dict[str, str]
    """Settings that override those of the command."""


def plan(
    config: BrokerConfig, log_dirs: Sequence[str], count: int, file_system: FileSystem, free_port: FreePort
) -> list[Member]:
    """The brokers, the first one first. Raises ConfigError if the settings are not those of such a cluster."""
    _check(config, count)
    paths = [path.rstrip("/") for path in log_dirs]
    metadata_path = config.optional_str("metadata.log.dir")
    first_id = with_node_id_of(config, [*([metadata_path] if metadata_path else []), *paths], file_system).node_id
    addresses = _addresses(config, count, free_port)
    controller = _controller(config, addresses, free_port)
    protocols = _protocols(config, controller)
    replication = _replication(config, count)
    metrics = _metrics(config, addresses, controller, count, free_port)
    members = []
    for number, node_id in enumerate(range(first_id, first_id + count)):
        listeners = [str(listener) for listener in addresses[number]]
        settings = {"node.id": str(node_id), **replication}
        if number == 0:
            directories = tuple(paths)
            settings["process.roles"] = "broker,controller"
            listeners.append(str(controller))
        else:
            directories = tuple(os.path.join(path, BROKERS_FOLDER, str(node_id)) for path in paths)
            settings["process.roles"] = "broker"
            host = controller.host if controller.host not in ("", "0.0.0.0", "::") else _LOOPBACK
            address = str(controller._replace(host=host)).partition("://")[2]
            settings["controller.quorum.bootstrap.servers"] = address
            if metadata_path:
                settings["metadata.log.dir"] = os.path.join(metadata_path, BROKERS_FOLDER, str(node_id))
        if "broker.id" in config.static:
            settings["broker.id"] = str(node_id)
        if protocols is not None:
            settings["listener.security.protocol.map"] = protocols
        if metrics:
            settings["moldau.metrics.listener"] = metrics[number]
        settings["log.dirs"] = ",".join(directories)
        cordoned = config.list("cordoned.log.dirs")
        if cordoned:
            given = (*log_dirs, *config.log_dirs)  # config.log_dirs may be relative, or empty
            own = dict(zip(given, (*directories, *directories), strict=False))
            settings["cordoned.log.dirs"] = ",".join(own.get(path, path) for path in cordoned)
        settings["listeners"] = ",".join(listeners)
        advertised = _advertised(config, number)
        if advertised:
            settings["advertised.listeners"] = advertised
        members.append(Member(node_id, directories, settings))
    return members


def format_members(
    config: BrokerConfig, members: Sequence[Member], file_system: FileSystem, *, allow_non_empty: bool = False
) -> None:
    """Format the directories that are new, for the cluster of the first broker, which is created if it is new.

    Raises StorageError.
    """
    first = members[0]
    cluster_id = _cluster_id(config.optional_str("metadata.log.dir"), first.log_dirs, file_system)
    for member in members:
        settings = {name: StaticValue(text, "--brokers") for name, text in member.settings.items()}
        format_directories(
            config.with_static(settings),
            member.log_dirs,
            cluster_id,
            file_system,
            allow_non_empty=allow_non_empty and member is first,
        )


def _check(config: BrokerConfig, count: int) -> None:
    if not 1 <= count <= MAX_BROKERS:
        raise ConfigError(f"--brokers {count}: the number must be between 1 and {MAX_BROKERS}, or auto")
    if config.roles != {"broker", "controller"}:
        roles = ",".join(sorted(config.roles))
        raise ConfigError(
            f"--brokers starts a cluster with its own controller, but process.roles is {roles}; remove one of them"
        )
    if config.list("controller.quorum.voters") or config.list("controller.quorum.bootstrap.servers"):
        # As in a configuration file of a single combined node, which names itself.
        addresses = {str(listener).partition("://")[2] for listener in config.controller_listeners}
        named = [entry.rpartition("@")[2] for entry in config.list("controller.quorum.voters")]
        named += config.list("controller.quorum.bootstrap.servers")
        ports = {address.rpartition(":")[2] for address in addresses}
        if any(entry.rpartition(":")[2] not in ports for entry in named):
            raise ConfigError(
                "--brokers starts a cluster with its own controller, but controller.quorum.bootstrap.servers or "
                "controller.quorum.voters names another one; remove one of them"
            )


def _replication(config: BrokerConfig, count: int) -> dict[str, str]:
    """Settings for the topics of coordinators that the configuration does not have: Apache Kafka's defaults, as far as
    there are enough brokers. With two brokers, transactions continue when one of them does not run."""
    if count == 1:
        return {}
    factor = min(count, _REPLICAS)
    wanted = {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": factor - 1,
    }
    return {name: str(value) for name, value in wanted.items() if name not in config.static}


def _addresses(config: BrokerConfig, count: int, free_port: FreePort) -> list[list[Listener]]:
    """The listeners of each broker, with their ports. The ports of the first broker are those of the settings."""
    taken: set[int] = {listener.port for listener in (*config.listeners, *config.controller_listeners)}
    take = partial(_take, free_port, taken)
    first = [listener._replace(port=listener.port or take(listener.host, 0)) for listener in config.listeners]
    others = [
        [
            listener._replace(port=take(listener.host, configured.port + number if configured.port else 0))
            for configured, listener in zip(config.listeners, first, strict=True)
        ]
        for number in range(1, count)
    ]
    return [first, *others]


def _metrics(
    config: BrokerConfig,
    addresses: Sequence[Sequence[Listener]],
    controller: Listener,
    count: int,
    free_port: FreePort,
) -> list[str]:
    """The address of the metrics of each broker; empty if there are no metrics. The ports of the others follow that of
    the first one."""
    address = config.optional_str("moldau.metrics.listener")
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdigit():
        return [address] * count if address else []  # each broker reports what is wrong
    taken = {controller.port, *(listener.port for listeners in addresses for listener in listeners)}
    first = int(port)
    bare = host.removeprefix("[").removesuffix("]")
    ports = [first or _take(free_port, taken, bare, 0)]
    taken.update(ports)
    ports += [_take(free_port, taken, bare, first + number if first else 0) for number in range(1, count)]
    return [f"{host}:{each}" for each in ports]


def _take(free_port: FreePort, taken: set[int], host: str, port: int) -> int:
    found = free_port(host, port if 0 < port < 65_536 and port not in taken else 0)
    while found in taken:
        found = free_port(host, 0)
    taken.add(found)
    return found


def _controller(config: BrokerConfig, addresses: Sequence[Sequence[Listener]], free_port: FreePort) -> Listener:
    """The address on which the controller listens."""
    taken = {listener.port for listeners in addresses for listener in listeners}
    if config.controller_listeners:
        configured = config.controller_listeners[0]
        return configured._replace(port=configured.port or _take(free_port, taken, configured.host, 0))
    name = config.controller_listener_name
    protocol = config.security_protocols.get(name, "PLAINTEXT")
    return Listener(name, _LOOPBACK, _take(free_port, taken, _LOOPBACK, 0), protocol)


def _protocols(config: BrokerConfig, controller: Listener) -> str | None:
    """`listener.security.protocol.map` with the listener of the controller; None if the default contains it."""
    protocols = config.security_protocols
    if controller.name in protocols and config.origin("listener.security.protocol.map") == "default":
        return None
    protocols.setdefault(controller.name, controller.security_protocol)
    return ",".join(f"{name}:{each}" for name, each in protocols.items())


def _advertised(config: BrokerConfig, number: int) -> str:
    """`advertised.listeners`: the ports of the first broker are configured, those of the others follow."""
    advertised = config.advertised_listeners.values()
    if number == 0:
        return ",".join(map(str, advertised))
    names = config.controller_listener_names
    others = [listener for listener in advertised if listener.name not in names]
    return ",".join(str(listener._replace(port=listener.port and listener.port + number)) for listener in others)


def _cluster_id(metadata_path: str | None, log_dirs: Sequence[str], file_system: FileSystem) -> str:
    """The id of the cluster of these directories; a new one if they are new."""
    for path in ([metadata_path] if metadata_path else []) + list(log_dirs):
        try:
            properties = decode_properties(file_system.read_file(os.path.join(path, META_PROPERTIES)))
        except OSError:
            continue
        if properties.get("cluster.id"):
            return properties["cluster.id"]
    return uuid_to_str(random_uuid())
