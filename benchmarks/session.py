"""A run from beginning to end: which rows can run, where the results are stored, which servers are available.

A complete run belongs to the project: its results are stored in ``benchmarks/results/<date>.json`` of the checkout. A
run of only some rows, or with less work, is stored in the cache folder unless a file is named.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..testing import kafka_jars
from . import machine, measurement, programs, registry, report, results
from .progress import TerminalProgress, durations
from .results import Results, ResultsError
from .row import Row, Subject
from .runner import Machinery, Plan, run, steps_of
from .servers import (
    APACHE_JVM_OPTIONS,
    COMMON_CONFIG,
    PAUSED_CONFIG,
    ApacheBrokers,
    ApacheServer,
    GuardedCeilingServer,
    MeasuredServer,
    MoldauBrokers,
    MoldauServer,
)

ROUNDS = 3

QUICK_SCALE = 0.02
"""Enough to show that every row works."""

# The requirements of a subject besides those of its rows.
_SUBJECT_NEEDS = {Subject.APACHE: ("java",), Subject.CEILING: ("cc",), Subject.MOLDAU: ()}


class SessionError(Exception):
    """The run is not possible as requested; the text states the reason, and what to do."""


@dataclass(frozen=True)
class Request:
    """The parameters of a run."""

    rows: Sequence[str] = ()
    """Names of rows or groups; all rows if empty."""
    apache: bool = False
    rounds: int | None = None
    quick: bool = False
    resume: bool = False
    again: bool = False
    """Also measure rows that a resumed run already has."""
    output: Path | None = None
    work_dir: Path | None = None
    moldau_config: Mapping[str, str] = field(default_factory=dict)
    """Settings only for Moldau's servers, to measure their effect."""


def cache_folder() -> Path:
    return kafka_jars.cache_dir() / "bench"


def rows_of(names: Sequence[str]) -> tuple[Row, ...]:
    """The named rows; SessionError for an unknown name."""
    try:
        return registry.select(registry.all_rows(), names)
    except KeyError as error:
        unknown = ", ".join(str(name) for name in error.args)
        raise SessionError(f"unknown row or group {unknown}; `moldau bench --list` lists all of them") from error


def measure(request: Request, progress: TerminalProgress) -> tuple[Results, Path]:
    """Execute the run; returns the results and their file."""
    if not Path("/proc/self/smaps_rollup").exists():
        raise SessionError("the benchmarks need Linux: they read a server's CPU time and memory from /proc")
    rows = rows_of(request.rows)
    path = _file(request)
    found, resumed = _results(request, path)
    plan = Plan(
        rows=rows,
        subjects=[subject for subject in Subject if request.apache or subject is not Subject.APACHE],
        rounds=request.rounds or (1 if request.quick else ROUNDS),
        scale=QUICK_SCALE if request.quick else 1.0,
    )
    plan, skipped = _possible(plan, progress.say)
    requested = {row.name for row in rows} | set(Subject)
    found.skipped = {name: reason for name, reason in found.skipped.items() if name not in requested} | skipped
    if not plan.rows or not plan.subjects:
        raise SessionError("none of the requested rows can be measured here")
    if is_whole(request) and programs.missing(["matplotlib"]):
        progress.say(f"no plots will be created, which need {programs.missing(['matplotlib'])['matplotlib']}")
    if request.again:
        for row in plan.rows:
            found.rows.pop(row.name, None)
    parent = (request.work_dir or cache_folder() / "work").absolute()
    with measurement.run_directory(parent) as directory:
        _describe_run(found, plan, directory, resumed, request.moldau_config)
        left = sum(len(steps_of(plan, row, found)) for row in plan.rows)
        progress.say(f"{left} steps; results go to {path}")

        def save() -> None:
            found.in_order(row.name for row in registry.all_rows())
            results.save(found, path)

        save()
        servers = Machinery(
            new_server=_Servers({}, request.moldau_config),
            new_paused_server=_Servers(PAUSED_CONFIG, request.moldau_config),
            settle=measurement.settle,
        )
        try:
            run(plan, found, directory=directory, machinery=servers, progress=progress, save=save)
        except KeyboardInterrupt:
            progress.say(f"{path} contains the measurements so far; --resume continues")
            raise
    return found, path


def write_report(runs: Sequence[tuple[Results, Path]], say: Callable[[str], None]) -> None:
    """Write results, each with its file, into the documentation of the checkout, with plots of the fullest ones if
    possible."""
    root = machine.checkout()
    if root is None:
        raise SessionError("the report is written into the documentation of a checkout, but this is not a checkout")
    page = root / "docs" / "performance.md"
    rows = registry.all_rows()
    pictures: list[tuple[Path, str]] = []
    lacking = programs.missing(["matplotlib"])
    if lacking:
        say(f"no plots: needs {lacking['matplotlib']}")
    else:
        from . import plots

        pictures = plots.draw(report.fullest(found for found, _path in runs), rows, page.parent / "performance")
    try:
        report.write(page, runs, rows, plots=pictures)
    except report.MarkersError as error:
        raise SessionError(f"{page}: {error}") from error
    say(f"written: {page}")


def load(path: Path) -> Results:
    try:
        return results.load(path)
    except ResultsError as error:
        raise SessionError(str(error)) from error


def is_whole(request: Request) -> bool:
    """A run whose results belong to the project: every row, with all of its work, and the servers' usual settings."""
    return not request.rows and not request.quick and not request.moldau_config


def earlier_durations() -> dict[str, float]:
    """The duration of each row, from the newest results in the checkout that contain it."""
    known: dict[str, float] = {}
    for path in _committed():
        try:
            known |= durations(results.load(path))
        except ResultsError:
            continue
    return known


def _committed() -> list[Path]:
    """The result files in the checkout, the newest last."""
    root = machine.checkout()
    return sorted((root / "benchmarks" / "results").glob("*.json"), key=_age) if root else []


def _age(path: Path) -> tuple[str, int]:
    """``2026-11-21.json`` comes before ``2026-11-21-2.json``, and that before ``-10``."""
    date, number = path.stem[:10], path.stem[11:]
    return date, int(number) if number.isdecimal() else 0


def _file(request: Request) -> Path:
    if request.output is not None:
        if request.output.exists() and not request.resume:
            raise SessionError(f"{request.output} exists: --resume continues it, a different --output starts a new run")
        return request.output
    root = machine.checkout()
    folder = root / "benchmarks" / "results" if root and is_whole(request) else cache_folder() / "results"
    existing = sorted(folder.glob("*.json"), key=_age)
    if request.resume:
        if not existing:
            raise SessionError(f"there is no run to resume in {folder}; use --output for a file in a different folder")
        return existing[-1]
    today = _today()
    taken = {path.stem for path in existing}
    names = [today, *(f"{today}-{number}" for number in range(2, len(taken) + 3))]
    return folder / f"{next(name for name in names if name not in taken)}.json"


def _results(request: Request, path: Path) -> tuple[Results, bool]:
    """New results, or existing ones to continue."""
    if request.resume and path.exists():
        return load(path), True
    return Results(date=_today()), False


def _today() -> str:
    return datetime.date.today().isoformat()


def _describe_run(found: Results, plan: Plan, directory: Path, resumed: bool, moldau_config: Mapping[str, str]) -> None:
    """Store the environment in the results. Results from two machines, or with two amounts of work, cannot be combined:
    SessionError."""
    described = machine.describe(directory)
    settings = {
        "work": f"{plan.scale:g}",
        "Apache Kafka's JVM": " ".join(APACHE_JVM_OPTIONS),
        "both servers": " ".join(f"{name}={value}" for name, value in COMMON_CONFIG.items()),
    }
    if moldau_config:
        settings["Moldau alone"] = " ".join(f"{name}={value}" for name, value in moldau_config.items())
    if resumed and (found.machine, found.settings) != (described, settings):
        raise SessionError("those results were made on another machine or with other settings; start a new run")
    found.machine, found.settings, found.versions = described, settings, machine.versions()
    commit = machine.commit()
    if commit not in found.commits:
        found.commits.append(commit)


def _possible(plan: Plan, say: Callable[[str], None]) -> tuple[Plan, dict[str, str]]:
    """The plan without the rows and subjects that cannot be measured here, and the reasons."""
    wants_java = Subject.APACHE in plan.subjects or any(programs.needs_jars(row.needs) for row in plan.rows)
    no_jars = programs.fetch_jars(say) if wants_java and not programs.missing(("java",)) else None

    def skip_reason(needs: Sequence[str]) -> str | None:
        lacking = programs.missing(needs)
        if lacking:
            return f"needs {' and '.join(lacking.values())}"
        return f"needs Kafka's jars: {no_jars}" if no_jars and programs.needs_jars(needs) else None

    reasons = {subject.value: skip_reason(_SUBJECT_NEEDS[subject]) for subject in plan.subjects}
    reasons |= {row.name: skip_reason(row.needs) for row in plan.rows}
    skipped = {name: reason for name, reason in reasons.items() if reason is not None}
    for reason in dict.fromkeys(skipped.values()):
        say(f"not measured, because it {reason}: {', '.join(name for name in skipped if skipped[name] == reason)}")
    rows = [row for row in plan.rows if row.name not in skipped]
    subjects = [subject for subject in plan.subjects if subject.value not in skipped]
    return Plan(rows, subjects, plan.rounds, plan.scale), skipped


@dataclass(frozen=True)
class _Servers:
    """Creates servers, each with these settings besides its own."""

    extra: Mapping[str, str]
    moldau: Mapping[str, str]
    """Moldau's settings."""

    def __call__(
        self,
        subject: Subject,
        directory: Path,
        config: Mapping[str, str],
        data_dir: Path | None,
        brokers: int,
        listeners: Mapping[str, str],
    ) -> MeasuredServer:
        merged = {**self.extra, **config}
        assert brokers == 1 or not listeners, "further listeners are for a single broker"
        match subject:
            case Subject.MOLDAU:
                if brokers > 1:
                    return MoldauBrokers(brokers, directory, config={**merged, **self.moldau}, data_dir=data_dir)
                config = {**merged, **self.moldau}
                return MoldauServer(directory, config=config, data_dir=data_dir, listeners=listeners)
            case Subject.APACHE if brokers > 1:
                return ApacheBrokers(brokers, directory, config=merged)
            case Subject.APACHE:
                return ApacheServer(directory, config=merged, data_dir=data_dir, listeners=listeners)
            case Subject.CEILING:
                return GuardedCeilingServer(programs.command("ceiling"), data_dir or directory / "data")
