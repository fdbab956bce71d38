"""The run: every row, on every subject, round after round.

For each row the servers are started on new directories and warmed up once, uncounted, with half of the work. In each of
the following rounds the subjects alternate, so that changes on the machine affect all of them. Only the measured server
runs; the others are stopped. Rows with ``own_server`` start their servers themselves.

Each measurement is saved immediately, so that an interrupted run loses nothing, and a resumed run skips the existing
ones. A failed measurement is a result too: it is stored with its error, and the run continues.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from . import processes
from .measurement import Measurement, settle
from .results import Outcome, Results
from .row import Numbers, Row, Server, Subject
from .servers import MeasuredServer

WARM_UP = 0.5
"""The share of a row's work that warms a server up. With less, a JVM would still compile while it is measured."""


@dataclass(frozen=True)
class Step:
    """Some work of one row for one subject. Round 0 is the warmup."""

    row: Row
    subject: Subject
    round: int


class Progress(Protocol):
    """Displays the progress of the run."""

    def begin(self, steps: Sequence[Step]) -> None:
        """Called with all planned steps."""

    def step_began(self, step: Step) -> None: ...

    def step_ended(self, step: Step, outcome: Outcome) -> None:
        """Also called after a failure."""


class NewServer(Protocol):
    """Creates a server without starting it."""

    def __call__(
        self,
        subject: Subject,
        directory: Path,
        config: Mapping[str, str],
        data_dir: Path | None,
        brokers: int,
        listeners: Mapping[str, str],
    ) -> MeasuredServer: ...


@dataclass(frozen=True)
class Machinery:
    """The run's interface to the machine."""

    new_server: NewServer
    """For rows that start their servers themselves."""
    new_paused_server: NewServer
    """For the other rows, whose servers must tolerate being stopped temporarily."""
    pause: Callable[[int], None] = processes.pause
    resume: Callable[[int], None] = processes.resume
    settle: Callable[[], None] = settle
    exit_reason: Callable[[int], str | None] = processes.exit_reason


@dataclass(frozen=True)
class Plan:
    """What to measure, and how much of it."""

    rows: Sequence[Row]
    subjects: Sequence[Subject]
    rounds: int
    scale: float = 1.0
    """The share of each row's work; less than 1 for a quick test of all rows."""

    def rounds_of(self, row: Row) -> int:
        return self.rounds if row.rounds is None or self.scale < 1 else row.rounds

    def subjects_of(self, row: Row) -> list[Subject]:
        return [subject for subject in row.subjects if subject in self.subjects]


def steps_of(plan: Plan, row: Row, done: Results) -> list[Step]:
    """The remaining steps of a row, in order."""
    rounds = [
        Step(row, subject, number)
        for number in range(1, plan.rounds_of(row) + 1)
        for subject in plan.subjects_of(row)
        if not done.has(row.name, subject, number)
    ]
    if row.own_server:
        return rounds
    return [Step(row, subject, 0) for subject in dict.fromkeys(step.subject for step in rounds)] + rounds


def run(
    plan: Plan,
    results: Results,
    *,
    directory: Path,
    machinery: Machinery,
    progress: Progress,
    save: Callable[[], None],
) -> None:
    """Measure what is missing in ``results``, and add it there; ``save`` is called after each measurement."""
    steps = {row.name: steps_of(plan, row, results) for row in plan.rows}
    progress.begin([step for of_row in steps.values() for step in of_row])
    for row in plan.rows:
        if steps[row.name]:
            _RowRun(row, plan, results, directory, machinery, progress, save).run(steps[row.name])


@dataclass
class _RowRun:
    row: Row
    plan: Plan
    results: Results
    directory: Path
    machinery: Machinery
    progress: Progress
    save: Callable[[], None]

    def run(self, steps: Iterable[Step]) -> None:
        with ExitStack() as resources:
            if self.row.during is not None:
                resources.enter_context(self.row.during())
            servers: dict[Subject, MeasuredServer] = {}
            for step in steps:
                self.progress.step_began(step)
                began = time.monotonic()
                numbers: Numbers = {}
                error = None
                try:
                    if not self.row.own_server and step.subject not in servers:
                        self._add_warm_server(step.subject, servers, resources)
                    if step.round:
                        numbers = self._measure(step.subject, servers.get(step.subject))
                except Exception as problem:  # noqa: BLE001 - the next row can run after any error of this one
                    error = describe(problem)
                    # The state of the server is unknown; the next round gets a new one.
                    broken = servers.pop(step.subject, None)
                    if broken is not None:
                        broken.kill()
                outcome = Outcome(step.round, time.monotonic() - began, {} if error else numbers, error)
                if step.round:
                    self.results.add(self.row.name, self.row.title, self.row.group, step.subject, outcome)
                    self.save()
                self.progress.step_ended(step, outcome)

    def _add_warm_server(self, subject: Subject, servers: dict[Subject, MeasuredServer], resources: ExitStack) -> None:
        """Start a server, do this row's work once, and stop it temporarily."""
        folder = Path(tempfile.mkdtemp(prefix=f"{self.row.name}-{subject}-", dir=self.directory))
        server = self.machinery.new_paused_server(subject, folder, {}, None, 1, {})
        resources.callback(server.close)
        servers[subject] = server
        server.start()
        self._work(subject, server, self.plan.scale * WARM_UP)
        self.machinery.settle()
        self._suspend(server)

    def _measure(self, subject: Subject, server: MeasuredServer | None) -> Numbers:
        if server is not None and self.row.during is None:
            self.machinery.resume(server.pid)
        numbers = self._work(subject, server, self.plan.scale)
        self.machinery.settle()
        if server is not None:
            self._suspend(server)
        return numbers

    def _suspend(self, server: MeasuredServer) -> None:
        """Stop the server temporarily, unless a client keeps connections to it and would wait for it."""
        if self.row.during is None:
            self.machinery.pause(server.pid)

    def _work(self, subject: Subject, server: MeasuredServer | None, scale: float) -> Numbers:
        """Do the row's work. If the server has exited, this is a failure, whatever the numbers are."""
        problem: Exception | None = None
        numbers: Numbers = {}
        try:
            with self._measurement(subject, server, scale) as bench:
                numbers = dict(self.row.measure(bench))
        except Exception as error:  # noqa: BLE001 - raised again below
            problem = error
        how = None if server is None else self.machinery.exit_reason(server.pid)
        if how is not None:
            raise RuntimeError(f"the server exited ({how})") from problem
        if problem is not None:
            raise problem
        return numbers

    def _measurement(self, subject: Subject, server: Server | None, scale: float) -> Measurement:
        def start(
            directory: Path,
            config: Mapping[str, str],
            data_dir: Path | None,
            brokers: int,
            listeners: Mapping[str, str],
        ) -> MeasuredServer:
            made = self.machinery.new_server(subject, directory, config, data_dir, brokers, listeners)
            try:
                made.start()
            except BaseException:
                made.close()
                raise
            return made

        return Measurement(subject, server=server, start_server=start, parent=self.directory, scale=scale)


def describe(problem: BaseException) -> str:
    """An error in a few lines: the exception, and the output of the failed program."""
    text = f"{type(problem).__name__}: {problem}".strip()
    if problem.__cause__ is not None:
        text += f"\n{describe(problem.__cause__)}"
    for stream in ("stderr", "stdout"):
        output = getattr(problem, stream, None)
        if output:
            text += (
                "\n" + (output.decode(errors="replace") if isinstance(output, bytes) else str(output)).strip()[-2000:]
            )
            break
    return text
