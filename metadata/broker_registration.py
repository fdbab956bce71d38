"""BrokerRegistration (62): a starting broker announces itself (KIP-631). Versions 0 to 4.

The checks, in this order, before anything is registered:

1. The broker belongs to this cluster.
2. No other incarnation of the broker has a valid session. One in controlled shutdown does not count: it is about to
   stop. Neither does one whose connection is closed, if the new one has a log directory of it: a process locks its
   directories, so the earlier one has ended. Apache Kafka's controller waits until the session has expired, 9 seconds
   after the crash of a broker.
3. Every finalized feature lies in the range that the broker supports. A feature that it does not name has the range
   0-0.
4. It names its log directories, and no reserved or foreign one (KIP-858).

A new incarnation ends what an earlier one led. Whether that one stopped cleanly is known by its epoch: a broker stores
it in its directories when it stops, and names it here (version 3). The same incarnation may register again, for example
with other directories: it keeps its epoch and its state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ..protocol.uuid import uuid_to_str
from .brokers import remove_from_partitions
from .features import DIRECTORIES_SINCE, ELIGIBLE_LEADER_REPLICAS_VERSION, register_broker_version
from .outcome import Outcome, Versioned
from .records import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage
    from .registrations import BrokerRegistration
    from .sessions import BrokerSessions

_RESERVED_DIRECTORIES: Final = 100
"""Directory ids below this number are reserved."""


def register(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    sessions: BrokerSessions,
    context: ControllerContext,
    *,
    end_offset: int,
    session_ms: int,
) -> Outcome[BrokerRegistrationResponse]:
    """Decide on a BrokerRegistrationRequest. `end_offset` is the offset of the first record of this decision.

    `session_ms` is the time on the clock of the sessions.

    Raises INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, UNSUPPORTED_VERSION, INVALID_REGISTRATION.
    """
    existing = image.brokers.get(request.broker_id)
    _check(image, request, existing, sessions, session_ms)
    is_same = existing is not None and existing.incarnation_id == request.incarnation_id
    records: list[Versioned] = []
    if existing is not None and not is_same:
        elr = bool(image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION))
        is_unclean = elr and request.previous_broker_epoch != existing.epoch
        records += remove_from_partitions(image, existing.id, context, unclean=is_unclean)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=existing.epoch if is_same and existing is not None else end_offset,
        end_points=[
            BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
        rack=request.rack,
        fenced=existing.fenced if is_same and existing is not None else True,
        in_controlled_shutdown=is_same and existing is not None and existing.in_controlled_shutdown,
    )
    if image.metadata_version >= DIRECTORIES_SINCE:
        record.log_dirs = list(request.log_dirs)
    records.append(Versioned(record, register_broker_version(image.metadata_version)))

    def begin_session() -> None:
        if existing is not None and not is_same:
            sessions.end(existing.id, existing.epoch)
        sessions.contact(record.broker_id, record.broker_epoch, session_ms)
        sessions.require(record.broker_id, record.broker_epoch, end_offset + len(records) - 1)

    return Outcome(BrokerRegistrationResponse(broker_epoch=record.broker_epoch), records, begin_session)


def _check(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    existing: BrokerRegistration | None,
    sessions: BrokerSessions,
    session_ms: int,
) -> None:
    if request.cluster_id != image.cluster_id:
        message = f"The cluster id of the controller is {image.cluster_id}, not {request.cluster_id}"
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    if (
        existing is not None
        and existing.incarnation_id != request.incarnation_id
        and not existing.in_controlled_shutdown
        and not _has_ended(existing, request, sessions)
        and sessions.is_valid(existing.id, existing.epoch, session_ms)
    ):
        message = f"Broker {existing.id} is registered by another process, whose session has not expired"
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "This controller does not migrate brokers from ZooKeeper")
    supported = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    for name, level in image.features.items():
        lowest, highest = supported.get(name, (0, 0))
        if not lowest <= level <= highest:
            message = f"The cluster has {name} {level}; broker {request.broker_id} supports {lowest} to {highest}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    if image.metadata_version >= DIRECTORIES_SINCE:
        _check_directories(image, request)


def _has_ended(existing: BrokerRegistration, request: BrokerRegistrationRequest, sessions: BrokerSessions) -> bool:
    """Whether the process of the earlier incarnation has ended: the other one has the lock of a common directory."""
    is_connected = sessions.is_connected(existing.id, existing.epoch)
    return not is_connected and not set(existing.directories).isdisjoint(request.log_dirs)


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    if not request.log_dirs:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "The broker names no log directories")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "The broker names a log directory twice")
    owners = {directory: each.id for each in image.brokers.values() for directory in each.directories}
    for directory in request.log_dirs:
        if int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"{uuid_to_str(directory)} is a reserved directory id")
        if owners.get(directory, request.broker_id) != request.broker_id:
            message = f"Directory {uuid_to_str(directory)} is registered by broker {owners[directory]}"
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, message)
