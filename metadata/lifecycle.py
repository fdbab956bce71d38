"""The life of a broker from the point of view of the active controller (KIP-631): registration and heartbeats.

    STARTING                     registers; the copy of the metadata does not contain the registration yet
    RECOVERY                     caught up with its registration; loads logs and creates partitions, still fenced
    RUNNING                      unfenced: leads partitions and serves clients
    PENDING_CONTROLLED_SHUTDOWN  asks the controller to move its leaderships
    SHUTTING_DOWN                the controller has no objection, or is not waited for any longer
    FAILED                       cannot join; `error` has the reason for the user

    STARTING --caught up--> RECOVERY --ready, unfenced--> RUNNING --shut down--> PENDING_... --granted--> SHUTTING_DOWN

`BrokerLifecycle` decides when the next request is due (`next_ms`) and what it is. One request is in flight at a time.
What happens during that time (`ready`, `begin_shutdown`, a failed directory) makes the next one due with the response.

A broker epoch is one life of a broker. If the controller has removed the registration, the broker registers again with
the same incarnation. If another process has registered with the same node.id, the broker must stop.

This module uses no sockets and no clock: `now_ms` is monotonic.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ..protocol.errors import ErrorCode, error_name
from ..protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ..protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from .registrations import BrokerRegistration, Endpoint, VersionRange

NO_EPOCH: Final = -1

_RETRY_MS: Final = 100
"""The pause after a failed request; it doubles with each failure, up to the interval of heartbeats."""

_CATCHING_UP_MS: Final = 10
"""The pause between heartbeats of a broker that has not caught up yet."""

_EARLY: Final = 8
"""A heartbeat may be early by this fraction of the interval."""

_SHUTTING_DOWN_MS: Final = 50
"""The pause between heartbeats of a broker that waits for the controller to grant its shutdown."""

NOT_AUTHORIZED: Final = (
    "Add the principal of this broker to super.users of the controllers, or give it CLUSTER_ACTION on the cluster"
)


class State(enum.Enum):
    """See the module docstring."""

    STARTING = "STARTING"
    RECOVERY = "RECOVERY"
    RUNNING = "RUNNING"
    PENDING_CONTROLLED_SHUTDOWN = "PENDING_CONTROLLED_SHUTDOWN"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    FAILED = "FAILED"


class BrokerDescription(NamedTuple):
    """What a broker registers."""

    node_id: int
    cluster_id: str
    incarnation_id: bytes
    """Drawn at each startup of the process."""
    listeners: tuple[Endpoint, ...]
    features: Mapping[str, VersionRange]
    directories: tuple[bytes, ...]
    """The ids of the online log directories."""
    rack: str | None = None


class LifecycleSettings(NamedTuple):
    """`broker.heartbeat.interval.ms` and `initial.broker.registration.timeout.ms`."""

    heartbeat_interval_ms: int = 2000
    registration_timeout_ms: int = 60_000


class BrokerLifecycle:
    """See the module docstring."""

    def __init__(
        self,
        description: BrokerDescription,
        settings: LifecycleSettings,
        now_ms: int,
        *,
        previous_broker_epoch: int = NO_EPOCH,
    ) -> None:
        """`previous_broker_epoch` is the epoch of the previous life, if it ended cleanly in every log directory."""
        self._description = description
        self._settings = settings
        self._previous_broker_epoch = previous_broker_epoch
        self._register_until_ms = now_ms + settings.registration_timeout_ms
        self._ready = False
        self._in_flight = False
        self._failures = 0  # since the latest success
        self._again = False  # the next request is due as soon as the response to this one has arrived
        self._offline: list[bytes] = []
        self._next_ms = now_ms
        self.finalized_features: Mapping[str, int] = {}
        """The features that the cluster has finalized, as far as they are known: for messages."""
        self.state = State.STARTING
        self.broker_epoch = NO_EPOCH
        """The epoch of the registration; -1 while there is none."""
        self.is_fenced = True
        """Whether the controller has fenced the broker, by its latest response."""
        self.error: str | None = None
        """Why the broker cannot join (FAILED)."""
        self.problem: str | None = None
        """Why the latest request has failed, for the log; None if it succeeded."""

    @property
    def next_ms(self) -> int | None:
        """When the next request is due. None: none is, before a response or an event."""
        if self._in_flight or self.state in (State.SHUTTING_DOWN, State.FAILED):
            return None
        return self._next_ms

    @property
    def is_registered(self) -> bool:
        return self.broker_epoch != NO_EPOCH

    # Events of the broker

    def ready(self, now_ms: int) -> None:
        """The partitions exist: the broker can be unfenced."""
        self._ready = True
        self._due(now_ms)

    def begin_shutdown(self, now_ms: int) -> None:
        """Ask the controller to move the leaderships. A broker that is not registered shuts down immediately."""
        if self.state in (State.SHUTTING_DOWN, State.FAILED):
            return
        if not self.is_registered:
            self.state = State.SHUTTING_DOWN
            return
        self.state = State.PENDING_CONTROLLED_SHUTDOWN
        self._due(now_ms)

    def end(self) -> None:
        """Shut down without waiting for the controller any longer."""
        if self.state is not State.FAILED:
            self.state = State.SHUTTING_DOWN

    def directory_failed(self, directory_id: bytes, now_ms: int) -> None:
        """A log directory has failed: the controller elects other leaders for its partitions."""
        if directory_id not in self._offline:
            self._offline.append(directory_id)
            self._due(now_ms)

    def directories_cordoned(self, now_ms: int) -> None:
        """Other log directories are cordoned now: the next heartbeat reports them."""
        self._due(now_ms)

    def replayed(self, registration: BrokerRegistration | None, offset: int, now_ms: int) -> None:
        """The registration of this node in the committed metadata up to `offset`."""
        if self.state in (State.SHUTTING_DOWN, State.FAILED):
            return
        if not self.is_registered or offset < self.broker_epoch:
            return
        if self.state is State.STARTING:
            self._due(now_ms)  # caught up
        elif self.state is State.RUNNING and not self._failures and not self._in_flight:
            early_ms = self._settings.heartbeat_interval_ms // _EARLY
            if self._next_ms <= now_ms + early_ms:
                self._next_ms = now_ms  # the process is awake: one wake-up for this and for the next fetch
        if registration is None:
            self._register_again(now_ms)
        elif registration.epoch > self.broker_epoch:
            if registration.incarnation_id != self._description.incarnation_id:
                self._fail(
                    f"Another process has registered as broker {self._description.node_id}. Each broker needs its own "
                    "node.id; stop one of them, or give it another node.id and another log directory."
                )
            else:
                # The response to a repeated registration was lost.
                self.broker_epoch = registration.epoch
                self._due(now_ms)

    # Requests

    def request(
        self, metadata_offset: int, cordoned: Iterable[bytes] | None = None
    ) -> BrokerRegistrationRequest | BrokerHeartbeatRequest:
        """The request that is due. `metadata_offset` is the last offset that the broker has applied.

        `cordoned`: the ids of the log directories that get no new replicas; None if the cluster does not support it.
        """
        assert not self._in_flight, "one request at a time"
        self._in_flight = True
        self._again = False
        if not self.is_registered:
            return self._registration()
        return BrokerHeartbeatRequest(
            broker_id=self._description.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=metadata_offset,
            want_fence=not self._ready,
            want_shut_down=self.state is State.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._offline),
            # Until the broker is ready, its dynamic settings are not in effect.
            cordoned_log_dirs=list(cordoned) if cordoned is not None and self._ready else None,
        )

    def _registration(self) -> BrokerRegistrationRequest:
        description = self._description
        return BrokerRegistrationRequest(
            broker_id=description.node_id,
            cluster_id=description.cluster_id,
            incarnation_id=description.incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in description.listeners
            ],
            features=[
                Feature(name=name, min_supported_version=supported.minimum, max_supported_version=supported.maximum)
                for name, supported in description.features.items()
            ],
            rack=description.rack,
            log_dirs=[each for each in description.directories if each not in self._offline],
            previous_broker_epoch=self._previous_broker_epoch,
        )

    # Responses

    def failed(self, problem: str, now_ms: int) -> None:
        """There was no response to the request."""
        self._in_flight = False
        self.problem = problem
        self._retry(now_ms)

    def handle(self, response: BrokerRegistrationResponse | BrokerHeartbeatResponse, now_ms: int) -> None:
        """The response to the request has arrived."""
        self._in_flight = False
        if isinstance(response, BrokerRegistrationResponse):
            self._registered(response, now_ms)
        else:
            self._heard(response, now_ms)

    def _registered(self, response: BrokerRegistrationResponse, now_ms: int) -> None:
        if response.error_code:
            node_id = self._description.node_id
            self.problem = _refusal(response.error_code, node_id, self._unsupported())
            if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._fail(self.problem)
            else:
                self._retry(now_ms)
            return
        self.problem = None
        self._failures = 0
        self.broker_epoch = response.broker_epoch
        self._next_ms = now_ms

    def _unsupported(self) -> str:
        """The finalized features that this broker does not support."""
        supported = self._description.features
        return ", ".join(
            f"{name}={level}"
            for name, level in sorted(self.finalized_features.items())
            if level and (name not in supported or level not in supported[name])
        )

    def _heard(self, response: BrokerHeartbeatResponse, now_ms: int) -> None:
        if response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED:
            self._register_again(now_ms)
            return
        if response.error_code:
            self.problem = f"The controller rejects heartbeats with {error_name(response.error_code)}"
            if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                self.problem += f". {NOT_AUTHORIZED}"
            self._retry(now_ms)
            return
        self.problem = None
        self._failures = 0
        self.is_fenced = response.is_fenced
        pause_ms = self._settings.heartbeat_interval_ms
        if self.state is State.STARTING:
            if response.is_caught_up:
                self.state = State.RECOVERY
                pause_ms = 0
            else:
                pause_ms = min(pause_ms, _CATCHING_UP_MS)
        elif self.state is State.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                self.state = State.SHUTTING_DOWN
            pause_ms = min(pause_ms, _SHUTTING_DOWN_MS)
        if self.state is State.RECOVERY and self._ready and not response.is_fenced:
            self.state = State.RUNNING
        self._next_ms = now_ms + (0 if self._again else pause_ms)

    def _register_again(self, now_ms: int) -> None:
        """The controller has removed the registration (UnregisterBroker)."""
        self.broker_epoch = NO_EPOCH
        self.is_fenced = True
        self._previous_broker_epoch = NO_EPOCH
        self._register_until_ms = now_ms + self._settings.registration_timeout_ms
        if self.state is State.PENDING_CONTROLLED_SHUTDOWN:
            self.state = State.SHUTTING_DOWN
        elif self.state is not State.FAILED:
            self.state = State.STARTING
        self._due(now_ms)

    def _retry(self, now_ms: int) -> None:
        if not self.is_registered and now_ms >= self._register_until_ms:
            self._fail(
                f"The broker could not register within {self._settings.registration_timeout_ms} ms "
                f"(initial.broker.registration.timeout.ms): {self.problem}"
            )
            return
        pause_ms = min(_RETRY_MS << min(self._failures, 16), self._settings.heartbeat_interval_ms)
        self._failures += 1
        if self.state is State.PENDING_CONTROLLED_SHUTDOWN:
            pause_ms = min(pause_ms, _SHUTTING_DOWN_MS)
        self._next_ms = now_ms + (0 if self._again else pause_ms)

    def _due(self, now_ms: int) -> None:
        self._next_ms = now_ms
        self._again = True

    def _fail(self, error: str) -> None:
        self.state = State.FAILED
        self.error = error


def _refusal(code: int, node_id: int, unsupported: str) -> str:
    """What a rejected registration means, and what to do. `unsupported` are the features that may be the reason."""
    match code:
        case ErrorCode.INCONSISTENT_CLUSTER_ID:
            return (
                "The controllers belong to another cluster than this log directory (INCONSISTENT_CLUSTER_ID). Check "
                "controller.quorum.bootstrap.servers and log.dirs"
            )
        case ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return (
                f"Broker {node_id} is registered, and its session has not expired (DUPLICATE_BROKER_REGISTRATION). If "
                "another process uses this node.id, give one of them another; after a crash, the session expires"
            )
        case ErrorCode.INVALID_REGISTRATION:
            return (
                "The controller rejects the log directories or listeners of this broker (INVALID_REGISTRATION); its "
                "log has the reason. A copied log directory has the directory.id of its original"
            )
        case ErrorCode.UNSUPPORTED_VERSION:
            which = f": {unsupported}" if unsupported else "; the controller's log names it"
            return (
                "The cluster has finalized a feature at a level that Moldau does not support "
                f"(UNSUPPORTED_VERSION){which}. Lower it with kafka-features.sh downgrade"
            )
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return f"The controller rejects the registration with {error_name(code)}. {NOT_AUTHORIZED}"
    return f"The controller rejects the registration with {error_name(code)}"
