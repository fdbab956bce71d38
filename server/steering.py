"""Commands for tests that no client API offers: wait for a group, end a session, move the clock.

`moldau.testing` controls its server with these commands, either over the pipe that is the standard input of a server
process or from another thread of the same process. A command is a JSON object. Over the pipe, a command is a line, and
its response is a line of standard output after `RESPONSE_PREFIX`. Each command is completed when it is done, in any
order; the ``id`` links a response to its command.

    do                  arguments                       completed
    wait_group_stable   group, members (or null)        when the group is stable, with this number of members
    wait_lag_zero       group, topic                    when the group has committed all records of the topic
    expire_member       group, member                   when the member is removed from the group
    expire_transaction  transactional_id                when the transaction is aborted in all of its partitions
    roll                topic, partition                when the partition has a new active segment
    delete_old_segments                                 when retention has checked all partitions, and files whose
                                                        deletion was due are unlinked
    set_clock           ahead_ms                        when the server's clock is this far ahead of the machine's
    compact             topic                           when all of its partitions are compacted
    add_fault           fault (`requests.faults`)       immediately; the result is the fault's number
    remove_faults       fault (a number, or null)       immediately; null removes all of them
    count_fault         fault                           immediately; the result is how often it was triggered
    requests            since, wait                     immediately, or with `wait` when there is one; the result has
                                                        the recorded requests from this number on, and the next number
    addresses                                           immediately; the result has the address of each listener
    cut                 addresses                       immediately; from then on this node refuses to connect to them

Each command that waits has a ``timeout_ms``; the error after a timeout states what was seen last. There is no polling:
the coordinators notify of every change (`Coordinators.watchers`), and the condition is checked then.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..coordinator.runtime import State
from ..log.compaction.job import CorruptSegmentError
from ..protocol.errors import ErrorCode, KafkaError
from .concurrency.clock import MovableClock
from .upkeep.compaction_process import WorkerError
from .upkeep.log_cleaner import LogChangedError

if TYPE_CHECKING:
    from ..group_coordinator.shard import GroupShard
    from .broker import Broker
    from .coordination.coordinators import Coordinators
    from .network.listeners import Network
    from .requests.fault_injection import FaultInjection

logger = logging.getLogger(__name__)

RESPONSE_PREFIX = "moldau answers: "


class SteeringError(Exception):
    """The command failed or timed out; the message states the last state."""


class Steering:
    """Runs the commands of a test on one broker. Belongs to the broker's event loop."""

    def __init__(self, broker: Broker, network: Network) -> None:
        self._broker = broker
        self._network = network
        self._injection: FaultInjection | None = None

    async def perform(self, request: Mapping[str, Any]) -> Any:
        """Return when the command is done, with its result, or None if it has none.

        Raises:
            SteeringError: the command cannot be done, or not in time.
        """
        try:
            match request["do"]:
                case "wait_group_stable":
                    group_id, members = request["group"], request["members"]
                    await self._wait(
                        lambda: self._is_stable(group_id, members),
                        lambda: f"the group {group_id} {self._state_of(group_id)}",
                        request["timeout_ms"],
                    )
                case "wait_lag_zero":
                    group_id, topic = request["group"], request["topic"]
                    await self._wait(
                        lambda: not self._lag(group_id, topic),
                        lambda: f"the group {group_id} {_lag_in_words(topic, self._lag(group_id, topic))}",
                        request["timeout_ms"],
                    )
                case "expire_member":
                    self._broker.groups.end_session(request["group"], request["member"])
                case "expire_transaction":
                    await self._expire_transaction(request["transactional_id"], request["timeout_ms"])
                case "roll":
                    self._roll(request["topic"], request["partition"])
                case "delete_old_segments":
                    await self._broker.retention.check()
                    await self._broker.trash.remove_due()
                case "set_clock":
                    self._set_clock(request["ahead_ms"])
                case "compact":
                    await self._compact(request["topic"], request["timeout_ms"])
                case "add_fault":
                    return self._add_fault(request["fault"])
                case "remove_faults":
                    self._faults().remove(request["fault"])
                case "addresses":
                    return {each.name: f"{each.host}:{each.port}" for each in self._network.listeners}
                case "count_fault":
                    return self._faults().triggered(request["fault"])
                case "requests":
                    return await self._requests(request["since"], request["timeout_ms"] if request["wait"] else 0)
                case "cut":
                    self._cut(request["addresses"])
                case unknown:
                    raise SteeringError(f"unknown command {unknown!r}")
        except KafkaError as error:
            raise SteeringError(str(error)) from error
        return None

    def _cut(self, addresses: list[str]) -> None:
        from .network.dialing import Address  # not needed without other nodes

        found = [address.rpartition(":") for address in addresses]
        self._broker.links.cut(Address(host, int(port)) for host, _, port in found)

    def _faults(self) -> FaultInjection:
        """Installed by the first command for faults or recorded requests."""
        if self._injection is None:
            from .requests.fault_injection import FaultInjection

            self._injection = FaultInjection(self._broker, self._network.dispatcher)
            self._injection.install(self._network)
        return self._injection

    def _add_fault(self, description: Mapping[str, Any]) -> int:
        from .requests.faults import FaultError

        try:
            return self._faults().add(description)
        except FaultError as error:
            raise SteeringError(str(error)) from error

    async def _requests(self, since: int | None, timeout_ms: int) -> dict[str, Any]:
        """With a timeout, wait for the first request. Without `since`, only the next number is returned."""
        injection = self._faults()
        if since is None:
            return {"next": injection.next_number, "requests": []}
        if timeout_ms and injection.next_number <= since:
            received = asyncio.Event()
            injection.watchers.append(received.set)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await received.wait()
            except TimeoutError:
                logger.debug("No request within %d ms", timeout_ms)
            finally:
                injection.watchers.remove(received.set)
        found = injection.recorded(since)
        return {"next": injection.next_number, "requests": [each.to_json() for each in found]}

    async def _expire_transaction(self, transactional_id: str, timeout_ms: int) -> None:
        transactions = self._broker.transactions
        transactions.time_out(transactional_id)
        await self._wait(
            lambda: transactions.has_ended(transactional_id),
            lambda: f"the transaction of {transactional_id} has not ended in all of its partitions",
            timeout_ms,
            transactions,
        )

    def _roll(self, topic: str, index: int) -> None:
        partition = self._broker.replicas.partition_by_key(topic, index)
        if partition is None:
            raise KafkaError(
                self._broker.replicas.missing_partition_error(topic, index), f"{topic}-{index} is not served."
            )
        partition.log.roll(self._broker.now_ms())

    def _set_clock(self, ahead_ms: int) -> None:
        clock = self._broker.now_ms
        if not isinstance(clock, MovableClock):
            raise SteeringError("this server uses the machine's clock")
        clock.ahead_ms = ahead_ms

    async def _compact(self, topic: str, timeout_ms: int) -> None:
        broker = self._broker
        found = broker.metadata.image.topics_by_name.get(topic)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} does not exist.")
        logs = [log for log in (broker.log_manager.get(topic, index) for index in found.partitions) if log is not None]
        if not all(log.config.compacted for log in logs):
            raise SteeringError(f"{topic} is not compacted: its cleanup.policy does not include compact")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await broker.log_cleaner.compact_now(logs)
        except TimeoutError:
            raise SteeringError(f"{topic} was not compacted within {timeout_ms / 1000:g} s") from None
        except (CorruptSegmentError, LogChangedError, WorkerError, OSError) as error:
            raise SteeringError(f"{topic} was not compacted: {error}") from error

    async def _wait(
        self,
        condition: Callable[[], bool],
        what_is: Callable[[], str],
        timeout_ms: int,
        coordinators: Coordinators[Any] | None = None,
    ) -> None:
        done: asyncio.Future[None] = self._broker.loop.create_future()

        def look() -> None:
            if done.done():
                return
            try:
                if condition():
                    done.set_result(None)
            except KafkaError as error:
                done.set_exception(error)

        watchers = (coordinators or self._broker.groups).watchers
        watchers.append(look)
        try:
            look()
            async with asyncio.timeout(timeout_ms / 1000):
                await done
        except TimeoutError:
            raise SteeringError(f"after {timeout_ms / 1000:g} s {what_is()}") from None
        finally:
            watchers.remove(look)

    def _shard(self, group_id: str) -> GroupShard | None:
        """The group's shard; None while no shard serves it. Pending writes are not in the shard yet."""
        try:
            runtime = self._broker.groups.runtime_of(group_id)
        except KafkaError:
            return None
        return runtime.shard if runtime.state is State.ACTIVE else None

    def _is_stable(self, group_id: str, members: int | None) -> bool:
        shard = self._shard(group_id)
        return shard is not None and shard.is_stable(group_id, members)

    def _state_of(self, group_id: str) -> str:
        shard = self._shard(group_id)
        group = None if shard is None else shard.states.groups.get(group_id)
        if group is None:
            return "does not exist"
        members = ", ".join(sorted(group.members))
        return f"is {group.state_name} and has {len(group.members)} members{': ' if members else ''}{members}"

    def _lag(self, group_id: str, topic: str) -> dict[int, int]:
        """The group's lag per partition of the topic, in records; partitions without lag are omitted."""
        found = self._broker.metadata.image.topics_by_name.get(topic)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} does not exist.")
        shard = self._shard(group_id)
        lag = {}
        for index in found.partitions:
            partition = self._broker.replicas.partition_by_key(topic, index)
            if partition is None:
                continue
            committed = None if shard is None else shard.states.offsets.get(group_id, topic, index)
            position = partition.log.log_start_offset if committed is None else committed.offset
            if position < partition.high_watermark:
                lag[index] = partition.high_watermark - position
        return lag


def _lag_in_words(topic: str, lag: Mapping[int, int]) -> str:
    if not lag:
        return "has caught up"  # between the last check and this message
    return "lags behind: " + ", ".join(f"{topic}-{index} by {records} records" for index, records in lag.items())


class Pipe:
    """Reads commands as lines of standard input. Its end is reported too: the parent process has closed the pipe."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._steering: Steering | None = None
        self._unfinished = b""
        self._tasks: set[asyncio.Task[None]] = set()
        loop.add_reader(0, self._readable)

    def serve(self, broker: Broker, network: Network) -> None:
        """Process commands from now on; earlier ones are ignored."""
        self._steering = Steering(broker, network)

    def _readable(self) -> None:
        data = os.read(0, 65536)
        if not data:
            self._loop.remove_reader(0)
            self._ended()
            return
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            if self._steering is not None:
                task = self._loop.create_task(_answer(self._steering, line))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


async def _answer(steering: Steering, line: bytes) -> None:
    try:
        request = json.loads(line)
    except ValueError:
        logger.warning("A line on standard input is not a command: %r", line[:100])
        return
    answer = {"id": request["id"]}
    try:
        answer["result"] = await steering.perform(request)
    except SteeringError as error:
        answer["error"] = str(error)
    except Exception as error:
        logger.exception("A command of a test failed with an unexpected error")
        answer["error"] = repr(error)
    print(RESPONSE_PREFIX + json.dumps(answer), flush=True)
