"""The controller: decides requests, and appends the resulting records to the metadata log.

A request is decided on the image with all appended records, as in KRaft. This image is ahead of the committed one while
records are not durable yet. Thus several changes can share a sync. After a sync, the durable changes are published in
order (`committed.py`). Only then may their requests be completed: `change` returns the response and the `Change` that
it must wait for. A request that changes nothing waits for the latest change that it may have seen.

After a failed sync it is unknown which data is durable. All pending changes fail with KAFKA_STORAGE_ERROR, and so do
all later ones. A full disk is temporary: an append that failed has changed nothing.

`flush_soon` and `follow` connect the controller with the threads and the event loop of a server (`serve`). Before
`serve`, and in programs without an event loop, a change is synced and applied immediately.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.named_tuples import NamedTuple
from ..protocol.steps import Steps, completed
from .features import LATEST_METADATA_VERSION, METADATA_VERSION, TRANSACTIONS_SINCE, missing_features
from .image import MetadataDelta, MetadataImage, MetadataUpdate
from .outcome import Outcome, Versioned
from .records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)

if TYPE_CHECKING:
    from ..protocol.schema import Request
    from .committed import CommittedMetadata
    from .context import ControllerContext
    from .metadata_log import MetadataLog
    from .observer_reads import Observers
    from .sessions import BrokerSessions

logger = logging.getLogger(__name__)

T = TypeVar("T")

Decide = Callable[[MetadataImage], Steps[Outcome[T]]]
"""A request to the controller: decides on an image."""

RegisterAgain = Callable[[MetadataImage, int, "ControllerContext"], list[Versioned]]
"""Records that register this node's broker again with this epoch, if an image no longer contains it."""

_FEW_RECORDS: Final = 100
"""A change with at most this many records is appended and replayed in one step."""

_ATTEMPTS: Final = 3
"""How often a request is decided in steps if other changes interfere. After that it is decided in one step."""


class Change:
    """The records of one decision: appended, then committed and applied, or lost after a storage failure."""

    __slots__ = ("_callbacks", "delta", "end_offset", "error", "is_done")

    def __init__(self, delta: MetadataDelta, end_offset: int) -> None:
        self.delta = delta
        self.end_offset = end_offset
        """The offset after the last record of the change."""
        self.is_done = False
        """The brokers of this process have applied the change, or the change has failed."""
        self.error: KafkaError | None = None
        """KAFKA_STORAGE_ERROR if the change has failed."""
        self._callbacks: list[Callable[[], None]] = []

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` when `is_done` becomes true; immediately if it already is."""
        if self.is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def end(self, error: KafkaError | None = None) -> None:
        """The change has been applied, or has failed."""
        self.error = error
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class RemoteBrokers(NamedTuple):
    """What the active controller knows about brokers of other processes, in addition to the metadata."""

    sessions: BrokerSessions
    observers: Observers
    """Those that fetch the log from this node."""
    session_ms: Callable[[], int]
    """The time on the clock of the sessions."""


class Controller:
    """See the module docstring."""

    def __init__(self, log: MetadataLog, committed: CommittedMetadata, context: ControllerContext) -> None:
        self._log = log
        self._committed = committed
        self.context = context
        self.image = committed.image
        """The image with every appended record: requests are decided on it."""
        self.remote: RemoteBrokers | None = None
        """The soft state about remote brokers; None if the controller does not listen."""
        self.register_again: RegisterAgain | None = None
        self.unclean_elections = 0
        """The elections of replicas that were not in sync, since the start of this process."""
        self.on_log_failure: Callable[[OSError], None] | None = None
        """Called if the log fails: after that the metadata cannot change."""
        self._pending: deque[Change] = deque()  # appended, and not known to be durable
        self._flush_soon: Callable[[], None] | None = None
        self._follow: Callable[[Steps[None]], None] = completed
        log.on_flushed = self._flushed
        log.on_failure = self._log_failed

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.end_offset

    def serve(self, flush_soon: Callable[[], None], follow: Callable[[Steps[None]], None]) -> None:
        """From now on an append calls `flush_soon`, after which the log must be flushed; a thread may do this.

        `follow` runs the steps in which listeners apply a change. Different changes may run concurrently.
        """
        self._flush_soon = flush_soon
        self._follow = follow

    def stop_serving(self) -> None:
        """From now on changes are synced and applied immediately again. No flush may be in progress."""
        self._flush_soon = None
        self._follow = completed

    # Changes

    def change(self, decide: Decide[T], now_ms: Callable[[], int]) -> Steps[tuple[T, Change | None]]:
        """Decide a request in steps, and append its records in the last step.

        The response may be sent when the change is done (None: immediately), unless the change has failed. Only one
        request at a time may be between its steps. Raises KafkaError as `decide` does, or KAFKA_STORAGE_ERROR; then the
        request has changed nothing.
        """
        for attempt in range(_ATTEMPTS):
            before = self.image
            outcome = yield from decide(before)
            if not outcome.records:
                if self.image is before:
                    if outcome.on_appended is not None:
                        outcome.on_appended()
                    return outcome.response, self.last_pending
                continue  # what the response has seen may have been lost in the meantime
            timestamp_ms = now_ms()
            if len(outcome.records) <= _FEW_RECORDS:
                if self.image is before:
                    return outcome.response, self._append_and_sync(outcome, timestamp_ms)
                continue
            update = MetadataUpdate(before)
            for number, versioned in enumerate(outcome.records, 1):
                update.replay(versioned.record)
                if not number % _FEW_RECORDS:
                    yield 0
            yield from update.prepare()
            data = yield from self._log.encode(outcome.records, timestamp_ms)
            if self.image is before:
                end_offset = self._log.append_encoded(data, len(outcome.records), timestamp_ms)
                image, delta = update.finish(offset=end_offset - 1, epoch=self._log.epoch, timestamp_ms=timestamp_ms)
                change = self._appended(image, delta, end_offset)
                if outcome.on_appended is not None:
                    outcome.on_appended()
                self._sync(timestamp_ms)
                return outcome.response, change
            logger.debug("Attempt %d: the metadata changed while a request was processed", attempt + 1)
        outcome = completed(decide(self.image))
        if not outcome.records:
            if outcome.on_appended is not None:
                outcome.on_appended()
            return outcome.response, self.last_pending
        return outcome.response, self._append_and_sync(outcome, now_ms())

    def append(self, records: Sequence[Versioned], now_ms: int) -> Change:
        """Append records and replay them. They are not durable yet, and no flush is requested.

        Raises KafkaError with KAFKA_STORAGE_ERROR; then nothing was appended.
        """
        end_offset = self._log.append(records, now_ms)
        replayed = (versioned.record for versioned in records)
        image, delta = self.image.apply(replayed, end_offset=end_offset, epoch=self._log.epoch, timestamp_ms=now_ms)
        return self._appended(image, delta, end_offset)

    def _append_and_sync(self, outcome: Outcome[Any], now_ms: int) -> Change:
        change = self.append(outcome.records, now_ms)
        if outcome.on_appended is not None:
            outcome.on_appended()
        self._sync(now_ms)
        return change

    def _appended(self, image: MetadataImage, delta: MetadataDelta, end_offset: int) -> Change:
        self.image = image
        change = Change(delta, end_offset)
        self._pending.append(change)
        return change

    def _sync(self, now_ms: int) -> None:
        if self._flush_soon is not None:
            self._flush_soon()
        else:
            self._log.flush(now_ms)

    @property
    def last_pending(self) -> Change | None:
        """The latest change that waits for a sync; the others are done before it is."""
        return self._pending[-1] if self._pending else None

    def _flushed(self) -> None:
        """Publish the changes that are durable now."""
        flushed_offset = self._log.flushed_offset
        while self._pending and self._pending[0].end_offset <= flushed_offset:
            change = self._pending.popleft()
            self._committed.publish(change.delta.after)
            self._follow(self._followed(change))

    def _followed(self, change: Change) -> Steps[None]:
        self.unclean_elections += change.delta.unclean_elections
        yield from self._committed.notify(change.delta)
        change.end()

    def _log_failed(self, error: OSError) -> None:
        """Fail the changes that are waiting for a sync."""
        self.image = self._committed.image
        pending, self._pending = self._pending, deque()
        try:
            if self.on_log_failure is not None:
                self.on_log_failure(error)
        finally:
            for change in pending:
                text = f"The metadata log has failed: {error.strerror or error}"
                change.end(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text))

    # Startup

    def activate(self, now_ms: int, *, transaction_open: bool) -> None:
        """Start to decide, as the leader of a new epoch.

        Appends the bootstrap records to an empty log, the end of an incomplete metadata transaction, and the features
        that this software has gained since the log was written.
        """
        records = self._activation_records(transaction_open)
        if records:
            self.append(records, now_ms)

    def _activation_records(self, transaction_open: bool) -> list[Versioned]:
        records: list[Versioned] = []
        if transaction_open:
            records.append(Versioned(AbortTransactionRecord(reason="Controller failover")))
        if self.image.metadata_version:
            last = self.image.controllers.get(self.context.node_id)
            missing = missing_features(self.image.features, last.features) if last else {}
            records += [
                Versioned(FeatureLevelRecord(name=name, feature_level=level)) for name, level in missing.items()
            ]
            return records
        bootstrap: list[MetadataRecord] = self._log.bootstrap_records()
        levels = [
            r.feature_level for r in bootstrap if isinstance(r, FeatureLevelRecord) and r.name == METADATA_VERSION
        ]
        if not levels:
            levels = [LATEST_METADATA_VERSION]
            bootstrap.insert(0, FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_METADATA_VERSION))
        wrapped: list[MetadataRecord] = bootstrap
        if levels[-1] >= TRANSACTIONS_SINCE:
            wrapped = [BeginTransactionRecord(name="Bootstrap records"), *bootstrap, EndTransactionRecord()]
        return records + [Versioned(record) for record in wrapped]

    # Requests. Their modules are imported on first use: most servers receive few kinds of requests.

    def deciding(
        self, request: Request, version: int, now_ms: Callable[[], int], principal: str | None = None
    ) -> Decide[Any]:
        """The decision on a request of this API version, for `change`. ``principal``: the client that has sent it."""
        decide = _DECISIONS[ApiKey(request.API_KEY)]
        return lambda image: decide(self, image, request, version, now_ms, principal)

    def _create_topics(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .create_topics import create_topics_in_steps

        return create_topics_in_steps(image, request, self.context)

    def _delete_topics(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .delete_topics import delete_topics

        yield 0
        return delete_topics(image, request, self.context)

    def _create_partitions(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .create_partitions import create_partitions_in_steps

        return create_partitions_in_steps(image, request, self.context)

    def _alter_configs(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .alter_configs import alter_configs_in_steps

        return alter_configs_in_steps(image, request, self.context)

    def _incremental_alter_configs(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .alter_configs import incremental_alter_configs_in_steps

        return incremental_alter_configs_in_steps(image, request, self.context)

    def _elect_leaders(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .elect_leaders import elect_leaders_in_steps

        return elect_leaders_in_steps(image, request, self.context)

    def _alter_reassignments(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .reassignments import alter_partition_reassignments_in_steps

        return alter_partition_reassignments_in_steps(image, request, self.context)

    def _list_reassignments(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .reassignments import list_partition_reassignments_in_steps

        response = yield from list_partition_reassignments_in_steps(image, request)
        return Outcome(response, [])

    def _update_features(self, image: MetadataImage, request: Any, version: int, *_: object) -> Steps[Outcome[Any]]:
        from .update_features import update_features

        yield 0
        return update_features(image, request, version, self.context)

    def _create_acls(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .acls import create_acls_in_steps

        return create_acls_in_steps(image, request, self.context)

    def _delete_acls(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .acls import delete_acls_in_steps

        return delete_acls_in_steps(image, request)

    def _alter_client_quotas(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .client_quotas import alter_client_quotas

        return alter_client_quotas(image, request)

    def _alter_user_scram_credentials(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .scram_credentials import alter_user_scram_credentials

        return alter_user_scram_credentials(image, request)

    def _create_delegation_token(
        self, image: MetadataImage, request: Any, version: int, now_ms: Callable[[], int], principal: str | None
    ) -> Steps[Outcome[Any]]:
        from .delegation_tokens import create_delegation_token

        yield 0
        assert principal is not None
        return create_delegation_token(image, request, version, principal, self.context, now_ms())

    def _renew_delegation_token(
        self, image: MetadataImage, request: Any, _version: int, now_ms: Callable[[], int], principal: str | None
    ) -> Steps[Outcome[Any]]:
        from .delegation_tokens import renew_delegation_token

        assert principal is not None
        return renew_delegation_token(image, request, principal, self.context, now_ms())

    def _expire_delegation_token(
        self, image: MetadataImage, request: Any, _version: int, now_ms: Callable[[], int], principal: str | None
    ) -> Steps[Outcome[Any]]:
        from .delegation_tokens import expire_delegation_token

        assert principal is not None
        return expire_delegation_token(image, request, principal, self.context, now_ms())

    def _unregister_broker(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .brokers import unregister_broker

        yield 0
        outcome = unregister_broker(image, request, self.context)
        if request.broker_id == self.context.node_id and self.register_again is not None:
            # This broker is running.
            after = image.replayed(versioned.record for versioned in outcome.records)
            outcome.records.extend(
                self.register_again(after, self._log.end_offset + len(outcome.records), self.context)
            )
        return outcome

    def _allocate_producer_ids(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .producer_ids import allocate_producer_ids

        yield 0
        return allocate_producer_ids(image, request)

    def _assign_directories(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .brokers import assign_replicas_to_directories

        yield 0
        return assign_replicas_to_directories(image, request, self.context)

    def _describe_quorum(
        self, image: MetadataImage, request: Any, version: int, now_ms: Callable[[], int], *_: object
    ) -> Steps[Outcome[Any]]:
        from .describe_quorum import QuorumStatus, describe_quorum

        yield 0
        voter = self._log.voter
        status = QuorumStatus(
            leader_id=voter.node_id,
            leader_epoch=self._log.epoch,
            directory_id=voter.directory_id,
            controller_endpoint=voter.endpoint,
            log_end_offset=self._log.end_offset,
            high_watermark=self._log.flushed_offset,
            observers=self.remote.observers.states(now_ms()) if self.remote is not None else (),
        )
        return Outcome(describe_quorum(request, version, status, now_ms()), [])

    # Requests of remote brokers. Registrations and heartbeats are decided in one step, on the current sessions.

    def _register_broker(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .broker_registration import register

        yield from ()
        assert self.remote is not None
        session_ms = self.remote.session_ms()
        end_offset = self._log.end_offset
        return register(
            image, request, self.remote.sessions, self.context, end_offset=end_offset, session_ms=session_ms
        )

    def _heartbeat(self, image: MetadataImage, request: Any, *_: object) -> Steps[Outcome[Any]]:
        from .broker_heartbeat import heartbeat

        yield from ()
        assert self.remote is not None
        return heartbeat(image, request, self.remote.sessions, self.context, self._log.end_offset)

    def _alter_partition(self, image: MetadataImage, request: Any, version: int, *_: object) -> Steps[Outcome[Any]]:
        from .alter_partition import alter_partition

        yield 0
        return alter_partition(image, request, version, self.context)

    def fence_expired(self, image: MetadataImage) -> Steps[Outcome[int | None]]:
        """The decision to fence the broker whose session has expired first. The response is its id if it was active."""
        from .broker_heartbeat import fence_expired

        yield from ()
        assert self.remote is not None
        session_ms = self.remote.session_ms()
        return fence_expired(
            image, self.remote.sessions, self.context, end_offset=self._log.end_offset, session_ms=session_ms
        )


_DECISIONS: Final[dict[ApiKey, Callable[..., Steps[Outcome[Any]]]]] = {
    ApiKey.CREATE_TOPICS: Controller._create_topics,
    ApiKey.DELETE_TOPICS: Controller._delete_topics,
    ApiKey.CREATE_PARTITIONS: Controller._create_partitions,
    ApiKey.ALTER_CONFIGS: Controller._alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Controller._incremental_alter_configs,
    ApiKey.ELECT_LEADERS: Controller._elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Controller._alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Controller._list_reassignments,
    ApiKey.CREATE_ACLS: Controller._create_acls,
    ApiKey.DELETE_ACLS: Controller._delete_acls,
    ApiKey.ALTER_CLIENT_QUOTAS: Controller._alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Controller._alter_user_scram_credentials,
    ApiKey.CREATE_DELEGATION_TOKEN: Controller._create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: Controller._renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: Controller._expire_delegation_token,
    ApiKey.UPDATE_FEATURES: Controller._update_features,
    ApiKey.UNREGISTER_BROKER: Controller._unregister_broker,
    ApiKey.ALLOCATE_PRODUCER_IDS: Controller._allocate_producer_ids,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Controller._assign_directories,
    ApiKey.DESCRIBE_QUORUM: Controller._describe_quorum,
    ApiKey.BROKER_REGISTRATION: Controller._register_broker,
    ApiKey.BROKER_HEARTBEAT: Controller._heartbeat,
    ApiKey.ALTER_PARTITION: Controller._alter_partition,
}
