"""Fake servers and rows that record how they are used."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from moldau.benchmarks.coordinator import wait_coordinator
from moldau.benchmarks.results import Outcome, Results
from moldau.benchmarks.row import Bench, Numbers, Row, Subject, Target
from moldau.benchmarks.runner import Machinery, Plan, Step, run
from moldau.benchmarks.servers import MoldauServer

SUBJECTS = (Subject.APACHE, Subject.MOLDAU, Subject.CEILING)


class FakeServer:
    """A server without a process; it records its operations in ``events``."""

    def __init__(self, subject: Subject, pid: int, data_dir: Path, events: list[str]) -> None:
        self.subject = subject
        self.pid = pid
        self.data_dir = data_dir
        self.bootstrap_servers = f"127.0.0.1:{pid}"
        self._events = events

    def address_of(self, listener: str) -> str:
        raise KeyError(listener)

    def start(self) -> None:
        self._events.append(f"start {self.subject}")

    def stop(self) -> None:
        self._events.append(f"stop {self.subject}")

    def kill(self) -> None:
        self._events.append(f"kill {self.subject}")

    def close(self) -> None:
        self._events.append(f"close {self.subject}")

    def cpu_seconds(self) -> float:
        return 0.0

    def resident_bytes(self) -> int:
        return 0


class FakeMachine:
    """The run's interface to the machine, and a row's work: all operations are recorded in ``events``."""

    def __init__(self, folder: Path) -> None:
        self.events: list[str] = []
        self.ended: list[tuple[Step, Outcome]] = []
        self.begun: list[Step] = []
        self.saved = 0
        self.ended_servers: dict[Subject, str] = {}
        self.results = Results(date="2026-11-21")
        self._folder = folder
        self._servers: dict[int, FakeServer] = {}

    def run(self, *rows: Row, rounds: int = 2, subjects: tuple[Subject, ...] = SUBJECTS, scale: float = 1.0) -> None:
        machinery = Machinery(
            new_server=self._new_server,
            new_paused_server=self._new_server,
            pause=lambda pid: self.events.append(f"pause {self._servers[pid].subject}"),
            resume=lambda pid: self.events.append(f"resume {self._servers[pid].subject}"),
            settle=lambda: None,
            exit_reason=lambda pid: self.ended_servers.get(self._servers[pid].subject),
        )
        plan = Plan(rows, subjects, rounds, scale)
        run(plan, self.results, directory=self._folder, machinery=machinery, progress=self, save=self._save)

    def row(self, name: str = "row", measure: Callable[[Bench], Numbers] | None = None, **fields: object) -> Row:
        """A row whose work is an event; ``measure`` returns other numbers, or fails."""

        def work(bench: Bench) -> Numbers:
            self.events.append(f"measure {name} {bench.subject} {bench.count(1000)}")
            return measure(bench) if measure else {"requests_per_s": float(bench.count(1000))}

        return Row(name, f"the work of {name}", "Group", work, **fields)  # type: ignore[arg-type]

    def begin(self, steps: object) -> None:
        assert isinstance(steps, list)
        self.begun = steps

    def step_began(self, step: Step) -> None:
        pass

    def step_ended(self, step: Step, outcome: Outcome) -> None:
        self.ended.append((step, outcome))

    def _save(self) -> None:
        self.saved += 1

    def _new_server(
        self,
        subject: Subject,
        directory: Path,
        config: Mapping[str, str],
        data_dir: Path | None,
        brokers: int,
        listeners: Mapping[str, str],
    ) -> FakeServer:
        assert directory.is_dir()
        assert not list(directory.iterdir())
        pid = len(self._servers) + 1
        self._servers[pid] = FakeServer(subject, pid, data_dir or directory, self.events)
        return self._servers[pid]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MoldauServer]:
    """A server in the state at the start of a row; the topics of its coordinators exist."""
    started = MoldauServer(tmp_path_factory.mktemp("moldau"), config={})
    try:
        started.start()
        wait_coordinator(started)
        yield started
    finally:
        started.close()


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def measured(**values: Mapping[Subject, list[float]]) -> Results:
    """Results of one row called ``row``: for each number, its value in each round, by subject."""
    results = Results(date="2026-11-21", commits=["abc"], machine={"cpu": "abacus"}, versions={"moldau": "1"})
    rounds: dict[tuple[Subject, int], dict[str, float]] = {}
    for number, by_subject in values.items():
        for subject, in_rounds in by_subject.items():
            for index, value in enumerate(in_rounds, 1):
                rounds.setdefault((subject, index), {})[number] = value
    for (subject, index), numbers in rounds.items():
        results.add("row", "some work", "Group", subject, Outcome(index, 1.0, numbers))
    return results


def targeted(*targets: Target) -> Row:
    """The row of ``measured``, with targets."""

    def never(_bench: Bench) -> Numbers:
        raise AssertionError("nothing is measured here")

    return Row("row", "some work", "Group", never, targets=targets)
