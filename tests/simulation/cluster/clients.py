"""The clients of a simulated cluster: requests to brokers, without a limit of time, and what every client has to know.

A `ClientProcess` is the process of all clients. Its connections are the links of production over the simulated network.
It waits for each response as long as it takes: that every request ends is one of the guarantees that are checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.records import iter_batches, iter_records
from moldau.protocol.schema import Versions
from moldau.server.concurrency.event_loop import EndOfIteration, readiness_of, turns_of
from moldau.server.concurrency.timers import TimerWheel
from moldau.server.network.dialing import Address
from moldau.server.network.links import Link, LinkError, Links

from .nodes import PORT, address_of
from .world import SimulatedBackground, SimulatedLoop

if TYPE_CHECKING:
    from moldau.protocol.schema import Request

    from .network import SimulatedNetwork
    from .world import World

ADDRESS = "10.0.1.1"

GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""

READ_COMMITTED = 1

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors after which a client repeats its request."""


class UnexpectedResponseError(AssertionError):
    """No client may get this response."""


class ClientProcess:
    """See the module docstring."""

    def __init__(self, world: World, network: SimulatedNetwork, brokers: Iterable[int], dice: Random) -> None:
        self.world = world
        self.brokers = list(brokers)
        self.dice = dice
        self.loop = SimulatedLoop(world, "clients", ADDRESS, network.descriptors)
        world.loops.append(self.loop)
        turns = turns_of(self.loop)
        self.links = Links.over_tcp(
            self.loop,
            readiness_of(self.loop),
            turns,
            TimerWheel(self.loop, clock=turns.clock),
            SimulatedBackground(self.loop),
            EndOfIteration(self.loop.call_soon),
            dice,
        )
        self.is_ending = False
        """Clients complete what they have begun, and begin nothing."""
        self.pending: dict[int, str] = {}
        """Requests without a response."""
        self.unfinished: dict[str, asyncio.Task[None]] = {}
        self.failure: BaseException | None = None
        self.on_response: Callable[[int, Request, Any, float], None] = lambda broker, request, response, began: None
        self.knows_stale_coordinators: Callable[[], bool] = lambda: False
        """See `Invariants`."""
        self._requests = 0

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a client."""
        task = self.loop.create_task(work)
        self.unfinished[name] = task

        def ended(task: asyncio.Task[None]) -> None:
            del self.unfinished[name]
            if self.failure is None:
                self.failure = task.exception()

        task.add_done_callback(ended)

    async def call(self, link: Link, broker: int, request: Request, versions: Versions) -> Any:
        """The response of a broker. Raises LinkError."""
        self._requests += 1
        number, began = self._requests, self.world.now
        self.pending[number] = f"{type(request).__name__} to broker {broker} since {began:.3f}"
        future: asyncio.Future[Any] = self.loop.create_future()

        def done(response: Any, error: Exception | None) -> None:
            del self.pending[number]
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(response)

        link.send(request, versions, done)
        response = await future
        self.on_response(broker, request, response, began)
        return response


class Client:
    """One client: its own connections to the brokers."""

    def __init__(self, process: ClientProcess, name: str) -> None:
        self.process = process
        self.name = name
        self.dice = Random(process.dice.random())
        self._links: dict[int, Link] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._leader_epochs: dict[tuple[str, int], int] = {}

    def any_broker(self) -> int:
        return self.dice.choice(self.process.brokers)

    async def pause(self, seconds: float = 0.2) -> None:
        await asyncio.sleep(seconds * self.dice.random())

    async def call(self, broker: int, request: Request, versions: Versions | None = None) -> Any:
        """The response of a broker; None if the connection was lost, or could not be opened."""
        link = self._links.get(broker)
        if link is None:
            address = Address(address_of(broker), PORT)
            link = self._links[broker] = self.process.links.open(address, self.name)
        try:
            return await self.process.call(link, broker, request, versions or request.STABLE_VERSIONS)
        except LinkError:
            return None

    async def leader_of(self, topic: str, partition: int) -> int:
        """The leader of a partition, as a broker knows it.

        A broker may be behind, and name an earlier leader: itself, after a pause. A client that knows a later leader
        epoch ignores this, as Kafka's clients do (KIP-320). With the sequence numbers that the later leader has
        accepted, a producer would get OUT_OF_ORDER_SEQUENCE_NUMBER from the earlier one.
        """
        known = self._leader_epochs
        while True:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            response = await self.call(self.any_broker(), wanted, Versions(7, 12))
            if response is not None:
                (found,) = response.topics
                for each in found.partitions:
                    if each.partition_index != partition or each.leader_epoch < known.get((topic, partition), -1):
                        continue
                    known[topic, partition] = each.leader_epoch
                    if each.leader_id >= 0 and not each.error_code:
                        return int(each.leader_id)
            await self.pause(0.5)

    async def coordinator_of(self, key_type: int, key: str) -> int:
        """The coordinator of a group or of a transactional id, from the cache or as a broker knows it."""
        while (key_type, key) not in self._coordinators:
            wanted = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            response = await self.call(self.any_broker(), wanted, Versions(4, 6))
            if response is not None:
                (found,) = response.coordinators
                if not found.error_code:
                    self._coordinators[key_type, key] = found.node_id
                    break
                self.expect_retriable(found.error_code, wanted)
            await self.pause(0.5)
        return self._coordinators[key_type, key]

    async def coordinate(self, key_type: int, key: str, request: Request, versions: Versions | None = None) -> Any:
        """The response of a coordinator; None if the connection was lost."""
        response = await self.call(await self.coordinator_of(key_type, key), request, versions)
        if response is None:
            self.forget_coordinator(key_type, key)
        return response

    def forget_coordinator(self, key_type: int, key: str) -> None:
        self._coordinators.pop((key_type, key), None)

    @staticmethod
    def expect_retriable(code: int, request: Request) -> None:
        """Check the error code of a response to a correct request."""
        if code not in RETRIABLE:
            raise UnexpectedResponseError(f"{ErrorCode(code).name} for {request}")

    async def read(self, topic: str, partition: int, isolation_level: int) -> list[bytes]:
        """The values of all records that a consumer gets from a partition, in order. With ``READ_COMMITTED``, it waits
        for the end of all open transactions: their markers are written later, and no transaction may stay open."""
        values: list[bytes] = []
        offset = 0
        while True:
            asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                isolation_level=isolation_level,
                topics=[FetchTopic(topic=topic, partitions=[asked])],
            )
            leader = await self.leader_of(topic, partition)
            response = await self.call(leader, request, Versions(4, 12))
            if response is None or response.error_code:
                await self.pause(0.5)
                continue
            (found,) = response.responses[0].partitions
            if found.error_code:
                self.expect_retriable(found.error_code, request)
                await self.pause(0.5)
                continue
            end = found.last_stable_offset if isolation_level == READ_COMMITTED else found.high_watermark
            if offset >= end:
                if end == found.high_watermark:
                    return values
                await self.pause(0.5)
                continue
            waiting = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
            skipped: set[int] = set()
            for batch in iter_batches(found.records or b""):
                while waiting and waiting[0][0] <= batch.last_offset:
                    skipped.add(waiting.pop(0)[1])
                offset = batch.next_offset
                if batch.is_control:
                    skipped.discard(batch.producer_id)
                elif not (batch.is_transactional and batch.producer_id in skipped):
                    values += [bytes(record.value or b"") for record in iter_records(batch)]
