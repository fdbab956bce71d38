"""The authorizer of a broker: decisions from the ACLs of the metadata, cached, with an audit log.

An ACL is in effect when the response to CreateAcls is sent, because the broker has applied the change then. A change of
the ACLs starts a new epoch: the cache is emptied, and connections forget their fast paths, which repeat the decision
of an earlier request.

The audit log (`kafka.authorizer.logger`) has denied operations at INFO, at a limited rate per host (`peer_log`), and
allowed ones at DEBUG. Its lines have the fields of Apache Kafka's. ``resourceRefCount`` is always 1: the references of
a request to the same resource are not counted. If no ACL allows an operation, the line has the command that adds one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ..metadata.acls import acl_of
from ..protocol.acl import AclOperation, AclResource
from ..security.acl_arguments import addition_of
from ..security.acls import CLUSTER_NAME, AclIndex, Decision, Rule, Settings
from .network.peer_log import Pace, PeerLog

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from ..coordinator.outcome import Caller
    from ..metadata.broker_metadata import BrokerMetadata
    from ..metadata.image import MetadataDelta, MetadataImage
    from .concurrency.timers import TimerWheel

audit = logging.getLogger("kafka.authorizer.logger")

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NO_ACL: Final = "allow.everyone.if.no.acl.found"
_MAX_CACHED: Final = 100_000
"""A client may request any number of names, so the cache is emptied when it has this many decisions."""
_LONGEST_NAME: Final = 255
"""A name that is longer is no topic's. It is neither cached, because 100,000 of them could be gigabytes, nor logged."""

_Key = tuple[str, str, int, int, str]


def settings_of(config: BrokerConfig) -> Settings:
    """The settings of the authorizer, which are in no table of Apache Kafka."""
    users = (config.text(SUPER_USERS) or "").split(";")
    open_to_all = (config.text(ALLOW_IF_NO_ACL) or "").strip().lower() == "true"
    return Settings(frozenset(user.strip() for user in users if user.strip()), open_to_all)


class Authorizer:
    """See the module docstring. It belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        image: Callable[[], MetadataImage],
        log_denied: Callable[[int, str, str, str], None],
    ) -> None:
        """``log_denied`` receives a level, a host, a kind and a line (`PeerLog.log`)."""
        self._log_denied = log_denied
        self._settings = settings
        self._image = image
        self._index: AclIndex | None = None
        self._cache: dict[_Key, bool] = {}
        self.epoch = 0
        """Increases with each change of the ACLs."""
        self.on_changed: Callable[[], None] | None = None
        """Called after each change."""

    def apply(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """The metadata has changed."""
        if delta.before.access_control_entries is not delta.after.access_control_entries:
            self._index = None
            self._cache.clear()
            self.epoch += 1
            if self.on_changed is not None:
                self.on_changed()

    def allows(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: AclResource,
        name: str = CLUSTER_NAME,
        *,
        request: str = "",
        logged: bool = True,
    ) -> bool:
        """Whether the client may perform the operation. ``request``: the name of the API, for the audit log.
        ``logged``: a denial is worth a line there."""
        key = (principal, host, int(operation), int(resource_type), name)
        allowed = self._cache.get(key)
        if allowed is None or (logged and audit.isEnabledFor(logging.INFO if not allowed else logging.DEBUG)):
            decision = self._decide(*key)
            if allowed is None:
                allowed = decision.allowed
                if len(name) <= _LONGEST_NAME:
                    if len(self._cache) >= _MAX_CACHED:
                        self._cache.clear()
                    self._cache[key] = allowed
            if logged:
                self._log(key, decision, request)
        return allowed

    @staticmethod
    def host_of(client_host: str) -> str:
        """The host in ACLs of an address as `RequestContext.client_host` has it."""
        return java_host(client_host.removeprefix("/"))

    def may_describe(self, caller: Caller, topic: str) -> bool:
        """Whether the client that sent a request to a coordinator may describe a topic."""
        host = self.host_of(caller.client_host)
        return self.allows(caller.principal, host, AclOperation.DESCRIBE, AclResource.TOPIC, topic, logged=False)

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: AclResource) -> bool:
        """Whether there may be a resource of the type on which the client may perform the operation."""
        return self._current().decide_by_type(principal, host, operation, resource_type)

    def operations(
        self, principal: str, host: str, possible: Iterable[AclOperation], resource_type: AclResource, name: str
    ) -> int:
        """The operations of these that the client may perform, as a bit field (KIP-430)."""
        return sum(
            1 << operation
            for operation in possible
            if self.allows(principal, host, operation, resource_type, name, logged=False)
        )

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        index = self._current()
        return index.decide(principal, host, AclOperation(operation), AclResource(resource_type), name)

    def _log(self, key: _Key, decision: Decision, request: str) -> None:
        """A line with the fields of Apache Kafka's."""
        principal, host, operation, resource_type, name = key
        is_shortened = len(name) > _LONGEST_NAME
        if is_shortened:
            name = f"{name[:_LONGEST_NAME]}... ({len(name)} characters)"
        rule = decision.by.value if isinstance(decision.by, Rule) else decision.by
        wanted, kind = AclOperation(operation).name, AclResource(resource_type).name
        line = (
            f"Principal = {principal} is {'Allowed' if decision.allowed else 'Denied'} operation = {wanted} "
            f"from host = {host} on resource = {kind.title().replace('_', '')}:LITERAL:{name} "
            f"for request = {request} with resourceRefCount = 1 based on rule {rule}"
        )
        if decision.by is Rule.DEFAULT_DENY and not is_shortened:
            operation_word, resource_word = (each.lower().replace("_", "-") for each in (wanted, kind))
            line += f"; to allow it: {addition_of(principal, operation_word, resource_word, name)}"
        if decision.allowed:
            audit.debug("%s", line)
        else:
            self._log_denied(logging.INFO, _peer_host(host), f"{wanted} on {kind}", line)

    def _current(self) -> AclIndex:
        if self._index is None:
            records = self._image().access_control_entries.values()
            self._index = AclIndex(map(acl_of, records), self._settings)
        return self._index


def new_authorizer(
    config: BrokerConfig,
    metadata: BrokerMetadata,
    timers: TimerWheel,
    clock: Callable[[], float],
    pace: Pace | None = None,
) -> Authorizer:
    """The authorizer of a node, which follows its metadata. ``clock``: that of the timers, in seconds. ``pace``: that
    of the network."""
    denied = PeerLog(audit, timers, clock, pace=pace)
    authorizer = Authorizer(settings_of(config), lambda: metadata.image, denied.log)
    metadata.subscribe(authorizer.apply)
    return authorizer


def _peer_host(host: str) -> str:
    """The address of a peer, from its host in ACLs: the inverse of `java_host`."""
    if ":" not in host:
        return host
    from ipaddress import IPv6Address

    return str(IPv6Address(host))


def java_host(host: str) -> str:
    """An address as Java writes it in ACLs: IPv6 addresses have eight groups, without ``::``."""
    host = host.removeprefix("::ffff:")
    if ":" not in host:
        return host
    from ipaddress import IPv6Address

    address, percent, zone = host.partition("%")
    groups = IPv6Address(address).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + percent + zone
