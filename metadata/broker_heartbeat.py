"""BrokerHeartbeat (63): a registered broker is alive; the controller fences it, unfences it, or lets it stop (KIP-631).

Versions 0 to 2: failed log directories since 1 (KIP-858), cordoned ones since 2.

    state                 event                                         next state
    fenced                wants to be unfenced, and has applied its     unfenced: elections where there is no leader
                          registration and what fenced it
    fenced                wants to shut down                            stopped
    unfenced              wants to be fenced                            fenced: its leaderships move
    unfenced              wants to shut down, and leads a partition     controlled shutdown: its leaderships move
    unfenced              wants to shut down, and leads nothing         stopped: fenced
    controlled shutdown   leads nothing, and all active brokers have    stopped: fenced
                          applied the records that moved leaderships

In any other case the state remains. A failed directory takes the partitions in it offline on this broker, whatever the
state.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ..protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from .brokers import check_broker_epoch, fail_directories, fence_broker, shut_down_broker, unfence_broker
from .features import CORDONED_DIRECTORIES_SINCE
from .outcome import Outcome, Versioned
from .records import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage
    from .registrations import BrokerRegistration
    from .sessions import BrokerSessions


class BrokerState(Enum):
    """A registered broker, as the controller sees it."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    STOPPED = "stopped"


def heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeatRequest,
    sessions: BrokerSessions,
    context: ControllerContext,
    end_offset: int,
) -> Outcome[BrokerHeartbeatResponse]:
    """Decide on a BrokerHeartbeatRequest. `end_offset` is the offset of the first record of this decision.

    Raises STALE_BROKER_EPOCH for an earlier incarnation of the broker.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    broker = image.brokers[request.broker_id]
    required_offset = sessions.required_offset(broker.id, broker.epoch)
    before = _state(broker)
    after = _next_state(before, broker, request, sessions, image, required_offset)
    records: list[Versioned] = []
    if after is not before:
        match after:
            case BrokerState.UNFENCED:
                records += unfence_broker(image, broker.id, context)
            case BrokerState.CONTROLLED_SHUTDOWN:
                records += shut_down_broker(image, broker.id, context)
            case BrokerState.FENCED | BrokerState.STOPPED if not broker.fenced:
                records += fence_broker(image, broker.id, context)
            case _:
                pass
    last_offset = end_offset + len(records) - 1
    offline = set(request.offline_log_dirs) & set(broker.directories)
    if offline:
        now = image.replayed(versioned.record for versioned in records)
        records += fail_directories(now, broker.id, offline, context)
    if _cordons(image, broker, request) and after is not BrokerState.STOPPED:
        record = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(request.cordoned_log_dirs or ())
        )
        records.append(Versioned(record, 3))

    def change_session() -> None:
        sessions.applied(broker.id, broker.epoch, request.current_metadata_offset)
        if after is before:
            return
        if after is BrokerState.CONTROLLED_SHUTDOWN:
            sessions.shutdown_begins(broker.id, broker.epoch, last_offset)
        elif after is BrokerState.FENCED:
            sessions.require(broker.id, broker.epoch, last_offset)
        elif after is BrokerState.STOPPED:
            sessions.end(broker.id, broker.epoch)

    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= required_offset,
        is_fenced=after in (BrokerState.FENCED, BrokerState.STOPPED),
        should_shut_down=after is BrokerState.STOPPED,
    )
    return Outcome(response, records, change_session)


def fence_expired(
    image: MetadataImage, sessions: BrokerSessions, context: ControllerContext, *, end_offset: int, session_ms: int
) -> Outcome[int | None]:
    """Fence the broker whose session has expired first. The response is its id, or None if no broker is to be fenced.

    `end_offset` is the offset of the first record of this decision.
    """
    expired = sessions.expired(session_ms)
    if expired is None:
        return Outcome(None, [])
    broker_id, epoch = expired
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or broker.fenced:
        return Outcome(None, [], lambda: sessions.end(broker_id, epoch))
    records = fence_broker(image, broker_id, context)

    def end_session() -> None:
        sessions.end(broker_id, epoch)
        sessions.require(broker_id, epoch, end_offset + len(records) - 1)

    return Outcome(broker_id, records, end_session)


def _state(broker: BrokerRegistration) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


def _next_state(
    state: BrokerState,
    broker: BrokerRegistration,
    request: BrokerHeartbeatRequest,
    sessions: BrokerSessions,
    image: MetadataImage,
    required_offset: int,
) -> BrokerState:
    match state:
        case BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.STOPPED
            if not request.want_fence and request.current_metadata_offset >= required_offset:
                return BrokerState.UNFENCED
        case BrokerState.UNFENCED:
            if request.want_fence:
                return BrokerState.STOPPED if request.want_shut_down else BrokerState.FENCED
            if request.want_shut_down:
                leads = _leads_any(image, broker.id)
                return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.STOPPED
        case BrokerState.CONTROLLED_SHUTDOWN:
            if not _leads_any(image, broker.id) and sessions.may_stop(broker, image.brokers.values()):
                return BrokerState.STOPPED
        case _:
            pass
    return state


def _leads_any(image: MetadataImage, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id
        for topic in image.topics_by_id.values()
        for partition in topic.partitions.values()
    )


def _cordons(image: MetadataImage, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> bool:
    cordoned = request.cordoned_log_dirs
    if cordoned is None or image.metadata_version < CORDONED_DIRECTORIES_SINCE:
        return False
    return broker.cordoned_directories is None or set(cordoned) != set(broker.cordoned_directories)
