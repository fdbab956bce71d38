"""Several brokers for the length of a ``with`` block: a cluster whose brokers can be killed, paused and cut off.

    with Cluster(brokers=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader_of("orders", 0))

With ``tls``, ``users`` and ``acls``, clients use a secured listener of each broker, as with `Broker`. The brokers
connect to each other through the listener without security, on the loopback interface.

The brokers are those of ``moldau serve --brokers 3``, in separate processes, but they are not restarted automatically.
Their ids are 1, 2 and 3. Broker 1 is also the controller: while it is stopped, killed or paused, the others serve their
partitions, but no topic is created, no other broker can start, and none becomes leader of another one's partitions. A
partition with one replica is unavailable while its broker is. With several replicas, another one leads when the session
of its broker has expired.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .broker import Broker, ConfigValue, config_text
from .server_host import CAN_FORK, ServerHost
from .server_process import ServerProcess, server_environment
from .server_run import BrokerError, ServerRun
from .waiting import wait_until

if TYPE_CHECKING:
    from ..protocol.messages.metadata import MetadataResponsePartition
    from ..server.processes.members import Member
    from .secured import Secured

_T = TypeVar("_T")
_TIMEOUT_S = 60.0


class ClusterBroker(Broker):
    """One broker of a `Cluster`, with all that a `Broker` offers to tests."""

    def __init__(
        self,
        member: Member,
        config: Mapping[str, ConfigValue],
        timeout_s: float,
        host: ServerHost | None,
        secured: Secured | None,
    ) -> None:
        """See `Broker`. The settings of the cluster are those of ``member``. ``host`` starts the processes, if any."""
        first, *self._more_listeners = member.settings["listeners"].split(",")
        own = {name: text for name, text in member.settings.items() if name not in ("listeners", "log.dirs")}
        super().__init__(
            config={**config, **own}, data_dir=member.log_dirs[0], listen=first.partition("://")[2], timeout_s=timeout_s
        )
        self.node_id = member.node_id
        self.log_dirs = [Path(path) for path in member.log_dirs]
        if len(self.log_dirs) > 1:
            self.config["log.dirs"] = member.settings["log.dirs"]
        self.is_paused = False
        self._host = host
        self._secured = secured

    @property
    def addresses(self) -> list[str]:
        """All addresses on which it listens, for clients and for other brokers."""
        return [self._listen, *(listener.partition("://")[2] for listener in self._more_listeners)]

    @property
    def address(self) -> str:
        """The address for clients without security, and for the requests of the test; known before the first start."""
        return self._listen

    @property
    def client_address(self) -> str:
        """The address for clients; known before the first start."""
        return self._listen if self._secured is None else self._more_listeners[0].partition("://")[2]

    @property
    def responds(self) -> bool:
        """Whether it is running, and not paused."""
        return self.running and not self.is_paused

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): its connections stay open, and it does nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Continue a paused process. No effect if it is not paused."""
        if self.is_paused:
            os.kill(self.pid, signal.SIGCONT)
            self.is_paused = False

    def stop(self) -> None:
        """See `Broker.stop`. A paused process is continued first."""
        if self.running:
            self.resume()
        super().stop()

    def kill(self) -> None:
        """See `Broker.kill`."""
        super().kill()
        self.is_paused = False

    def set_cut(self, addresses: list[str]) -> None:
        """From now on, refuse connections to these addresses of other brokers."""
        self._ask(self._timeout_s, do="cut", addresses=addresses)

    def _prepare(self, secured: Secured) -> None:
        """The cluster creates the users and ACLs."""

    def _listen_options(self) -> list[str]:
        listeners = [argument for listener in self._more_listeners for argument in ("--listen", listener)]
        return ["--listen", self._listen, *listeners]

    def _start_process(self) -> ServerRun:
        return ServerProcess(self._command(), self._log_path, self._host, f"moldau-{self.node_id}")


class Cluster:
    """A cluster of brokers for tests; see the module.

    ``config``: Kafka broker settings of all brokers, over those of :class:`Broker`. The internal topics have one
    partition per broker.
    ``data_dir``: keep the data here, also for later clusters; by default in a temporary directory that is removed.
    ``log_dirs``: how many log directories each broker has; ``cluster.broker(2).log_dirs`` are their paths.
    ``racks``: the `broker.rack` of each broker.
    ``tls``, ``users``, ``acls``: see :class:`Broker`. :meth:`client_config` has the settings of clients:

        with Cluster(tls=True, users={"alice": "secret"}, acls=["alice all topic orders"]) as cluster:
            producer = Producer(cluster.client_config("alice"))

    ``session_timeout``: after how many seconds without a heartbeat the controller fences a broker, so that its
    partitions have no leader. Kafka's default is 9; with a short one, a busy machine may fence brokers that work.
    ``timeout_s``: how long a start, a stop or a wait may take before :class:`BrokerError`.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        config: Mapping[str, ConfigValue] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        log_dirs: int = 1,
        racks: Sequence[str] | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        acls: Sequence[str] | None = None,
        session_timeout: float = 9.0,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        from ..config.sources import load
        from ..log.files import RealFileSystem
        from ..server.processes.free_ports import FreePorts
        from ..server.processes.members import format_members, plan
        from ..server.storage.ephemeral import EphemeralDirectory

        is_secured = tls or bool(users) or acls is not None
        if is_secured and "listeners" in (config or {}):
            raise ValueError("listeners cannot be combined with tls, users or acls")
        settings: dict[str, ConfigValue] = {
            "offsets.topic.num.partitions": brokers,
            "transaction.state.log.num.partitions": brokers,
            "broker.session.timeout.ms": round(session_timeout * 1000),
            "broker.heartbeat.interval.ms": max(1, min(2000, round(session_timeout * 1000 / 4))),
            **(config or {}),
        }
        self._timeout_s = timeout_s
        self._directory = EphemeralDirectory("moldau-test-")
        self._secured: Secured | None = None
        listeners = "PLAINTEXT://127.0.0.1:0"
        if is_secured:
            from .secured import Secured  # most clusters do not need it

            self._secured = Secured(Path(self._directory.path), tls=tls, users=users or {}, acls=acls)
            settings |= self._secured.settings()
            listeners += f",{self._secured.protocol}://127.0.0.1:0"
        self._host = ServerHost(server_environment(os.environ)) if CAN_FORK else None
        path = str(data_dir if data_dir is not None else Path(self._directory.path) / "data")
        texts = [f"{name}={config_text(value)}" for name, value in settings.items()]
        merged = load(overrides=[f"listeners={listeners}", *texts])
        self._ports = FreePorts()
        paths = [path, *(f"{path}-{number}" for number in range(2, log_dirs + 1))]
        members = plan(merged, paths, brokers, RealFileSystem(), self._ports)
        for member, rack in zip(members, racks or (), strict=racks is not None):
            member.settings["broker.rack"] = rack
        format_members(merged, members, RealFileSystem())
        self._brokers = {
            member.node_id: ClusterBroker(member, settings, timeout_s, self._host, self._secured) for member in members
        }
        self._cuts: set[frozenset[int]] = set()

    # -- state --

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for any client."""
        return ",".join(broker.client_address for broker in self._brokers.values())

    @property
    def ca_file(self) -> Path:
        """See :attr:`Broker.ca_file`."""
        if self._secured is None:
            raise BrokerError("the cluster has no TLS: use Cluster(tls=True)")
        return self._secured.ca_file

    def client_config(
        self, user: str | None = None, *, client: str = "confluent-kafka", mechanism: str = "SCRAM-SHA-256"
    ) -> dict[str, Any]:
        """The settings with which a client connects to the cluster, as this user. See :meth:`Broker.client_config`."""
        if self._secured is None:
            raise BrokerError("the cluster has no security: use Cluster(tls=True) or Cluster(users=...)")
        return self._secured.client_config(self.bootstrap_servers, user, client, mechanism)

    @property
    def broker_ids(self) -> list[int]:
        """The ids of the brokers. The first one is also the controller."""
        return list(self._brokers)

    def broker(self, broker_id: int) -> ClusterBroker:
        """One broker, with its faults, requests and log: ``cluster.broker(2).faults``."""
        try:
            return self._brokers[broker_id]
        except KeyError:
            known = ", ".join(map(str, self._brokers))
            raise BrokerError(f"there is no broker {broker_id}; the cluster has {known}") from None

    def log(self) -> str:
        """The standard error of all brokers since their first start, one after the other."""
        return "".join(f"-- broker {broker.node_id}\n{broker.log()}" for broker in self._brokers.values())

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The id of the broker that leads the partition.

        A broker that is killed or paused remains the leader until its session has expired.

        Raises :class:`BrokerError` if the topic or the partition does not exist, or has no leader.
        """
        leader = self._leader_of(topic, partition)
        if leader is None:
            raise BrokerError(f"{topic}-{partition} has no leader, or does not exist")
        return leader

    def await_leader(
        self, topic: str, partition: int = 0, broker_id: int | None = None, timeout: float | None = None
    ) -> int:
        """Return when the partition exists and has a leader, or this one, on all brokers that respond.

            cluster.kill(2)
            cluster.start(2)
            cluster.await_leader("orders", 0, 2)

        Returns the leader. Raises :class:`BrokerError` after ``timeout`` seconds.
        """

        def known() -> int | None:
            found = {self._leader_seen_by(broker, topic, partition) for broker in self._responding()}
            leader = found.pop() if len(found) == 1 else None
            return leader if broker_id in (None, leader) else None

        wanted = "a leader" if broker_id is None else f"broker {broker_id} as leader"
        return self._wait_until(known, f"{topic}-{partition} has {wanted}", timeout)

    def await_isr(self, topic: str, partition: int, broker_ids: set[int], timeout: float | None = None) -> None:
        """Return when exactly these brokers are the in-sync replicas of the partition, as all brokers that respond
        know.

            cluster.await_isr("orders", 0, {1, 2, 3})

        Raises :class:`BrokerError` after ``timeout`` seconds.
        """
        self._wait_until(
            lambda: all(self._isr_seen_by(broker, topic, partition) == broker_ids for broker in self._responding()),
            f"{broker_ids} are the in-sync replicas of {topic}-{partition}",
            timeout,
        )

    def create_topic(
        self,
        topic: str,
        leaders: Sequence[int | Sequence[int]] | int = 1,
        *,
        config: Mapping[str, ConfigValue] | None = None,
    ) -> None:
        """Create a topic with this number of partitions, or with one on each of these brokers, and return when all
        brokers that respond know it.

            cluster.create_topic("orders", [1, 2, 3])
            cluster.create_topic("payments", [[1, 2, 3]], config={"min.insync.replicas": 2})

        Several brokers for a partition are its replicas; the first one leads. ``config``: settings of the topic.
        """
        from ..protocol.errors import ErrorCode, KafkaError
        from ..protocol.messages.create_topics import (
            CreatableReplicaAssignment,
            CreatableTopic,
            CreatableTopicConfig,
            CreateTopicsRequest,
        )

        wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1)
        if isinstance(leaders, int):
            wanted.num_partitions = leaders
        else:
            wanted.assignments = [
                CreatableReplicaAssignment(
                    partition_index=index, broker_ids=[replicas] if isinstance(replicas, int) else list(replicas)
                )
                for index, replicas in enumerate(leaders)
            ]
        wanted.configs = [
            CreatableTopicConfig(name=name, value=config_text(value)) for name, value in (config or {}).items()
        ]
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(self._timeout_s * 1000))
        (result,) = self._call(self._responding()[0], request).topics
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), f"creating {topic}: {result.error_message}")
        count = leaders if isinstance(leaders, int) else len(leaders)
        self._wait_until(
            lambda: all(len(self._leaders_seen_by(broker, topic)) == count for broker in self._responding()),
            f"all brokers know the leaders of {topic}",
        )

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Let another broker lead the partition, and return when all brokers that respond know it.

            cluster.move_leader("orders", 0, 2)

        The broker becomes the first replica. If it has none, it gets the records of the present leader, which loses its
        replica. Clients that know the present leader receive NOT_LEADER_OR_FOLLOWER. Broker 1 must run.

        Raises :class:`BrokerError` if the partition does not exist, and :class:`KafkaError` if the controller rejects
        the change.
        """
        from ..protocol.errors import ErrorCode, KafkaError
        from ..protocol.messages.alter_partition_reassignments import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )
        from ..protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

        self.broker(broker_id)
        leader, replicas = self.leader_of(topic, partition), self._replicas(topic, partition)
        replaced = broker_id if broker_id in replicas else leader
        wanted = [broker_id, *(replica for replica in replicas if replica != replaced)]
        moved = ReassignableTopic(
            name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=wanted)]
        )
        timeout_ms = int(self._timeout_s * 1000)
        controller = self._responding()[0]
        response = self._call(controller, AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=timeout_ms))
        for result in (response, *(each for answer in response.responses for each in answer.partitions)):
            if result.error_code:
                raise KafkaError(
                    ErrorCode(result.error_code), f"moving {topic}-{partition} to {broker_id}: {result.error_message}"
                )
        self._wait_until(
            lambda: (
                self._replicas(topic, partition) == wanted
                and broker_id in self._isr_seen_by(controller, topic, partition)
            ),
            f"broker {broker_id} has the records of {topic}-{partition}",
        )
        request = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])], timeout_ms=timeout_ms
        )
        for result in self._call(controller, request).replica_election_results:
            for each in result.partition_result:
                if each.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                    raise KafkaError(
                        ErrorCode(each.error_code),
                        f"electing {broker_id} for {topic}-{partition}: {each.error_message}",
                    )
        self.await_leader(topic, partition, broker_id)

    # -- failures --

    def kill(self, broker_id: int) -> None:
        """Kill a broker (SIGKILL), as in a crash. :meth:`start` starts it again."""
        self.broker(broker_id).kill()

    def pause(self, broker_id: int) -> None:
        """Suspend a broker (SIGSTOP), like a machine that stalls: its connections stay open, and it does nothing."""
        self.broker(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Continue a paused broker."""
        self.broker(broker_id).resume()

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly: the controller takes its leaderships first."""
        self.broker(broker_id).stop()

    def start(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed, and return when it serves clients: same address, same data."""
        self.broker(broker_id).start()

    def cut(self, first: int, second: int) -> None:
        """Cut the connections between two brokers: they refuse each other until :meth:`heal`. Clients reach both.

        Broker 1 is also the controller: a broker that is cut from it is fenced when its session has expired. A broker
        that starts again is not cut.
        """
        self.broker(first)
        self.broker(second)
        self._cuts.add(frozenset((first, second)))
        self._apply_cuts(first, second)

    def heal(self) -> None:
        """End all cuts."""
        affected = set().union(*self._cuts)
        self._cuts.clear()
        self._apply_cuts(*affected)

    def _apply_cuts(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            broker = self._brokers[broker_id]
            others = {other for cut in self._cuts if broker_id in cut for other in cut - {broker_id}}
            if broker.responds:
                broker.set_cut([address for other in others for address in self._brokers[other].addresses])

    # -- lifecycle --

    def reset(self) -> None:
        """Repair everything: all brokers run and reach each other, and there are no topics except internal ones."""
        for broker in self._brokers.values():
            broker.resume()
        self.heal()
        self.start_all()
        for broker in self._brokers.values():
            broker.reset()
        wait_until(
            lambda: not self._delete_topics(),
            "all brokers have deleted the topics",
            seconds=self._timeout_s,
            state=lambda: {broker.address: self._topics(broker) for broker in self._brokers.values()},
        )

    def start_all(self) -> None:
        """Start all brokers that do not run, in parallel."""
        stopped = [broker for broker in self._brokers.values() if not broker.running]
        if stopped:
            with ThreadPoolExecutor(len(stopped)) as threads:
                list(threads.map(lambda broker: broker.start(), stopped))
        secured = self._secured
        if secured is not None:
            secured.prepare(self._responding()[0].address)
            self._wait_until(
                lambda: all(secured.is_known_by(broker.address) for broker in self._responding()) or None,
                "all brokers know the users and the ACLs",
            )

    def close(self) -> None:
        """Stop all brokers, the one with the controller last, and remove the temporary directory."""
        try:
            with _first_error() as attempt:
                for broker in self._brokers.values():
                    attempt(broker.resume)
                first, *others = self._brokers.values()
                if others:
                    with ThreadPoolExecutor(len(others)) as threads:
                        for closing in [threads.submit(broker.close) for broker in others]:
                            attempt(closing.result)
                attempt(first.close)
        finally:
            if self._host is not None:
                self._host.close()
            self._ports.close()
            self._directory.remove()

    def __enter__(self) -> Self:
        try:
            self.start_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- internals --

    def _wait_until(self, condition: Callable[[], _T | None], what: str, timeout: float | None = None) -> _T:
        try:
            return wait_until(condition, what, seconds=self._timeout_s if timeout is None else timeout, retry=OSError)
        except TimeoutError as error:
            raise BrokerError(str(error)) from error

    def _responding(self) -> list[ClusterBroker]:
        found = [broker for broker in self._brokers.values() if broker.responds]
        if not found:
            raise BrokerError("no broker of the cluster is running")
        return found

    def _leader_of(self, topic: str, partition: int) -> int | None:
        """As the controller sees it, or another broker if that one does not respond."""
        return self._leader_seen_by(self._responding()[0], topic, partition)

    def _leader_seen_by(self, broker: ClusterBroker, topic: str, partition: int) -> int | None:
        return self._leaders_seen_by(broker, topic).get(partition)

    def _leaders_seen_by(self, broker: ClusterBroker, topic: str) -> dict[int, int]:
        """The leaders of the partitions that have one."""
        partitions = self._partitions_seen_by(broker, topic)
        return {each.partition_index: each.leader_id for each in partitions if each.leader_id >= 0}

    def _isr_seen_by(self, broker: ClusterBroker, topic: str, partition: int) -> set[int]:
        partitions = self._partitions_seen_by(broker, topic)
        return {id for each in partitions if each.partition_index == partition for id in each.isr_nodes}

    def _replicas(self, topic: str, partition: int) -> list[int]:
        """The brokers that have, or will have, the records; as the controller sees it. The first one is preferred."""
        partitions = self._partitions_seen_by(self._responding()[0], topic)
        return [id for each in partitions if each.partition_index == partition for id in each.replica_nodes]

    def _partitions_seen_by(self, broker: ClusterBroker, topic: str) -> list[MetadataResponsePartition]:
        from ..protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (found,) = self._call(broker, request).topics
        partitions: list[MetadataResponsePartition] = found.partitions
        return partitions

    def _delete_topics(self) -> bool:
        """Delete the topics that brokers still know: a client of an earlier test may have created one again. Returns
        whether there were any."""
        left = [broker for broker in self._brokers.values() if self._topics(broker)]
        for broker in left:
            broker.reset()
        return bool(left)

    def _topics(self, broker: ClusterBroker) -> list[str]:
        """The names of the topics that the broker knows, without internal ones."""
        from ..protocol.messages.metadata import MetadataRequest

        listed = self._call(broker, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return [str(topic.name) for topic in listed.topics if not topic.is_internal]

    def _call(self, broker: ClusterBroker, request: Any) -> Any:
        from .wire import WireClient

        with WireClient(broker.address, timeout_s=self._timeout_s) as wire:
            return wire.call(request)


@contextmanager
def _first_error() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Yields a function that calls another one. The first error is raised at the end of the block."""
    errors: list[BaseException] = []

    def attempt(action: Callable[[], None]) -> None:
        try:
            action()
        except (BrokerError, OSError) as error:
            errors.append(error)

    yield attempt
    if errors:
        raise errors[0]
