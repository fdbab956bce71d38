"""Transactions of all clients that support them: see `transaction_driver`.

The transactions are committed or aborted, and contain several topics and partitions, or offsets with records. A zombie
is fenced, a transaction times out, and a producer crashes and restarts. The server is killed with -9 before the end of
a transaction, right after the response, and during the request. All clients run together in these tests, because the
restarts take most of the time.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from moldau.compat_tests.transaction_driver import FENCED, UNKNOWN, Fleet, Kind, Transactor, Transactors, kinds
from moldau.compat_tests.transaction_wire import describe, read, wait_for_coordinators
from moldau.testing import topic_requests as w
from moldau.testing.client import CODECS, ClientError
from moldau.testing.full_run import in_full_run
from moldau.testing.group_requests import committed
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.servers import Server
from moldau.testing.waiting import wait_until

pytestmark = pytest.mark.slow

BUMPING_CLIENTS = ("java", "franz-go")
"""Those that do otherwise where ``transaction.version`` is 2: the others have nothing to lose below."""

KINDS = kinds()
OLDER = [kind for kind in KINDS if kind.name.startswith("java-")]
# One client after the other, so that each is started once.
SETTINGS = [
    *((kind, 2) for kind in KINDS if kind not in OLDER),
    *in_full_run(*((kind, 2) for kind in OLDER), *((kind, 1) for kind in KINDS if kind.name in BUMPING_CLIENTS)),
]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Fleet() as started:
        yield started


@pytest.fixture(scope="module", params=SETTINGS, ids=lambda setting: f"{setting[0]}-at-{setting[1]}")
def client(request: pytest.FixtureRequest, fleet: Fleet) -> Transactors:
    """A client, and a server with one of the levels of ``transaction.version``."""
    kind, level = request.param
    return fleet.get(kind, request.getfixturevalue({1: "transaction_servers_1", 2: "transaction_servers"}[level]))


@pytest.fixture
def wire(client: Transactors) -> Iterator[RoutedWire]:
    with RoutedWire(client.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def new_topic(client: Transactors, topic_name: Callable[[], str]) -> Callable[[], str]:
    return lambda: w.create_topic(client.bootstrap_servers, topic_name(), 2).name


def test_commits_and_aborts(client: Transactors, new_topic: Callable[[], str]) -> None:
    """Alternate commits and aborts, over two topics of two partitions; a transaction may be empty."""
    one, two = new_topic(), new_topic()
    producer = client.open(one)
    for number in range(6):
        producer.begin()
        if number < 4:
            for topic, partition in ((one, 0), (one, 1), (two, 1)):
                producer.produce(topic, partition, f"{number}-a", f"{number}-b")
                producer.produce(topic, partition, f"{number}-c")
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    kept = [f"{number}-{letter}" for number in (0, 2) for letter in "abc"]
    everything = [f"{number}-{letter}" for number in range(4) for letter in "abc"]
    assert client.read(one, two) == {one: {0: kept, 1: kept}, two: {0: [], 1: kept}}
    assert client.read(one, two, committed=False) == {one: {0: everything, 1: everything}, two: {0: [], 1: everything}}


def test_open_transactions_are_not_read(client: Transactors, wire: RoutedWire, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    producer = client.open(topic)
    producer.begin()
    producer.produce(topic, 0, "a")
    producer.commit()
    producer.begin()
    producer.produce(topic, 0, "b")
    assert client.read(topic) == {topic: {0: ["a"], 1: []}}
    assert client.read(topic, committed=False) == {topic: {0: ["a", "b"], 1: []}}
    producer.commit()
    # The response does not wait for the markers.
    wait_until(lambda: describe(wire, topic).transaction_state == "CompleteCommit", "the markers")
    assert client.read(topic) == {topic: {0: ["a", "b"], 1: []}}


def test_compressed(client: Transactors, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    values = [f"{number}" * 100 for number in range(50)]
    for codec in CODECS:
        producer = client.open(f"{topic}-{codec}", codec=codec)
        producer.begin()
        producer.produce(topic, 0, *values)
        producer.commit()
        producer.begin()
        producer.produce(topic, 1, *values)
        producer.abort()
    wait_until(lambda: len(client.read(topic)[topic][0]) == len(CODECS) * len(values), "the last marker")
    assert client.read(topic) == {topic: {0: values * len(CODECS), 1: []}}


def test_consume_transform_produce(client: Transactors, wire: RoutedWire, new_topic: Callable[[], str]) -> None:
    """Offsets are committed with the records, or not at all."""
    source, target = new_topic(), new_topic()
    upstream = client.open(f"{source}-upstream")
    for committed_one in (True, False):
        upstream.begin()
        for partition in (0, 1):
            upstream.produce(source, partition, *(f"{number}" for number in range(5)))
        if committed_one:
            upstream.commit()
        else:
            upstream.abort()

    def offsets() -> Mapping[int, int]:
        return committed(wire, source, source, (0, 1))

    aborted = client.open(f"{source}-pipe", group_id=f"{source}-first", source=source)
    aborted.begin()
    aborted.pipe(target, 10)
    aborted.abort()
    assert client.read(target) == {target: {0: [], 1: []}}
    assert set(committed(wire, f"{source}-first", source, (0, 1)).values()) == {-1}
    pipe = client.open(f"{source}-pipe", group_id=source, source=source)
    pipe.begin()
    pipe.pipe(target, 10)
    assert offsets() == {0: -1, 1: -1}
    pipe.commit()
    wait_until(lambda: -1 not in offsets().values(), "the offsets")
    # Clients differ in whether their position includes the markers and the aborted records, which end at 12.
    assert all(5 <= offset <= 12 for offset in offsets().values()), offsets()
    piped = [f"{number}-piped" for number in range(5)]
    wait_until(lambda: client.read(target) == {target: {0: piped, 1: piped}}, "the piped records")
    # And on from there.
    upstream.begin()
    upstream.produce(source, 0, "next")
    upstream.commit()
    pipe.begin()
    pipe.pipe(target, 1)
    pipe.commit()
    wait_until(lambda: client.read(target)[target][0] == [*piped, "next-piped"], "what came later")


def test_a_zombie_is_fenced(client: Transactors, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    zombie = client.open(topic)
    zombie.begin()
    zombie.produce(topic, 0, "lost")
    successor = client.open(topic)
    successor.begin()
    successor.produce(topic, 0, "kept")
    successor.commit()
    # Not before the end: some clients then request a new epoch, which aborts the open transaction.
    assert zombie.refusal(lambda: zombie.produce(topic, 0, "zombie")) == FENCED
    wait_until(lambda: client.read(topic) == {topic: {0: ["kept"], 1: []}}, "the records of the successor")
    assert client.read(topic, committed=False) == {topic: {0: ["lost", "kept"], 1: []}}


def test_a_zombie_does_not_commit(client: Transactors, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    zombie = client.open(topic)
    zombie.begin()
    zombie.produce(topic, 0, "lost")
    client.open(topic)
    assert zombie.refusal(zombie.commit) == FENCED
    assert client.read(topic) == {topic: {0: [], 1: []}}


def test_a_transaction_that_times_out(client: Transactors, wire: RoutedWire, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    producer = client.open(topic, timeout_ms=1_000)
    producer.begin()
    producer.produce(topic, 0, "lost")
    wait_until(lambda: describe(wire, topic).transaction_state == "CompleteAbort", "the timeout")
    assert producer.refusal(producer.commit) != ""
    producer = client.open(topic)
    producer.begin()
    producer.produce(topic, 0, "kept")
    producer.commit()
    wait_until(lambda: client.read(topic) == {topic: {0: ["kept"], 1: []}}, "the next transaction")


def test_a_producer_crashes_and_restarts(client: Transactors, new_topic: Callable[[], str]) -> None:
    """It crashes in the middle of a transaction, which only the next producer with its id ends."""
    topic = new_topic()
    with Transactors(client.kind, client.bootstrap_servers) as doomed:
        producer = doomed.open(topic)
        producer.begin()
        producer.produce(topic, 0, "lost")
        doomed.kill()
    assert client.read(topic, committed=False) == {topic: {0: ["lost"], 1: []}}
    producer = client.open(topic)
    producer.begin()
    producer.produce(topic, 0, "kept")
    producer.commit()
    wait_until(lambda: client.read(topic) == {topic: {0: ["kept"], 1: []}}, "the records of the next one")


# -- the server dies --


class Survivor:
    """A client that survives the kills of the server, with its own topic."""

    def __init__(self, process: Transactors, topic: str) -> None:
        self.process = process
        self.topic = topic
        self.producer: Transactor = process.open(topic)
        self.expected: list[str] = []
        self.unknown: list[str] = []
        """Records that may or may not exist: their outcome is unknown to the client."""

    def write(self, value: str) -> None:
        """Write within the open transaction."""
        for partition in (0, 1):
            self.producer.produce(self.topic, partition, value)

    def commit(self, values: Sequence[str]) -> None:
        """From now on, the records of the transaction must be found."""
        try:
            self.producer.commit()
        except ClientError as error:
            if error.code != UNKNOWN:
                raise
            self.unknown += values
            self.producer.abort()
        else:
            self.expected += values


DEATHS_IN_COMMIT = (0.0, 0.002, 0.01)
"""Seconds from the moment when all clients begin to commit."""


@pytest.fixture(scope="module")
def survivors(restartable_transaction_server: Server) -> Iterator[dict[str, Survivor | Exception]]:
    """All clients after all kills. Failures of one client are reported by its own test."""
    server = restartable_transaction_server
    address = server.bootstrap_servers
    topics = {str(each): w.create_topic(address, f"survivor-{each}", 2).name for each in kinds()}
    failures: dict[str, Exception] = {}
    with Fleet() as fleet, ThreadPoolExecutor(len(kinds()) + 1) as threads:
        alive: dict[str, Survivor] = {}

        def all_do(step: Callable[[Survivor], object]) -> None:
            futures = {name: threads.submit(step, survivor) for name, survivor in alive.items()}
            for name, future in futures.items():
                if (error := future.exception()) is not None:
                    failures[name] = AssertionError(repr(error))
                    del alive[name]

        def survivor(kind: Kind) -> Survivor:
            return Survivor(fleet.get(kind, address), topics[str(kind)])

        alive.update(zip(topics, threads.map(survivor, kinds()), strict=True))

        def revive() -> None:
            server.start()
            wait_for_coordinators(address)

        # Before the end.
        all_do(lambda each: each.producer.begin())
        all_do(lambda each: each.write("before-1"))
        server.kill()
        revive()
        all_do(lambda each: each.write("before-2"))
        all_do(lambda each: each.commit(["before-1", "before-2"]))
        # Right after the response, once to a commit and once to an abort.
        all_do(lambda each: each.producer.begin())
        all_do(lambda each: each.write("after"))
        all_do(lambda each: each.commit(["after"]))
        all_do(lambda each: each.producer.begin())
        all_do(lambda each: each.write("aborted"))
        all_do(lambda each: each.producer.abort())
        server.kill()
        revive()

        # During the requests.
        def die_in(delay: float) -> None:
            time.sleep(delay)
            server.kill()
            revive()

        for delay in DEATHS_IN_COMMIT:
            value = f"during-{delay}"
            all_do(lambda each: each.producer.begin())
            all_do(partial(Survivor.write, value=value))
            death = threads.submit(die_in, delay)
            all_do(partial(Survivor.commit, values=[value]))
            death.result()
        all_do(lambda each: each.producer.begin())
        all_do(lambda each: each.write("last"))
        all_do(lambda each: each.commit(["last"]))
        yield {**alive, **failures}


@pytest.mark.usefixtures("markers_after_death")
@pytest.mark.parametrize("kind", kinds(), ids=str)
def test_the_server_is_killed_in_every_phase(
    survivors: Mapping[str, Survivor | Exception], restartable_transaction_server: Server, kind: Kind
) -> None:
    """Committed records are stored once, in order, and no transaction is open."""
    survivor = survivors[str(kind)]
    if isinstance(survivor, Exception):
        raise survivor
    topic = survivor.topic
    with RoutedWire(restartable_transaction_server.bootstrap_servers) as wire:
        wait_until(lambda: describe(wire, topic).transaction_state == "CompleteCommit", "the last marker")
        found = survivor.process.read(topic)[topic]
        assert found[0] == found[1]
        assert [value for value in found[0] if value not in survivor.unknown] == survivor.expected
        for partition in (0, 1):
            stored = read(wire, w.Topic(topic, bytes(16)), partition=partition)
            assert stored.high_watermark == stored.last_stable_offset
            assert stored.values.count(b"aborted") == 1
