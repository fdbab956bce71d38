"""Which rows run, where the results are stored, and the effect of missing programs."""

from pathlib import Path

import pytest

from moldau.benchmarks import machine, measurement, programs, registry, report, results, session
from moldau.benchmarks.progress import Forecast, TerminalProgress, duration
from moldau.benchmarks.results import Outcome, Results
from moldau.benchmarks.row import Bench, Numbers, Row, Subject
from moldau.benchmarks.runner import Step
from moldau.benchmarks.session import Request, SessionError
from moldau.cli.main import main

TODAY = "2026-01-31"


def work(_bench: Bench) -> Numbers:
    return {"seconds": 1.0}


OWN = Row("own", "some work", "One group", work, subjects=(Subject.MOLDAU,), own_server=True)
FAILS = Row(
    "fails",
    "work that fails",
    "Other",
    lambda bench: dict[str, Numbers]()[""],
    subjects=(Subject.MOLDAU,),
    own_server=True,
)
NEEDY = Row("needy", "more work", "Other", work, needs=("no_such_package",), own_server=True)


@pytest.fixture(autouse=True)
def isolated_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A checkout and a cache that are empty, rows that need no server, and a day that does not end."""
    monkeypatch.setattr(session, "_today", lambda: TODAY)
    monkeypatch.setattr(machine, "checkout", lambda: tmp_path / "checkout")
    monkeypatch.setattr(registry, "all_rows", lambda: (OWN, FAILS, NEEDY))
    monkeypatch.setattr(measurement, "settle", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def measure(request: Request) -> tuple[Results, Path]:
    with TerminalProgress({}) as progress:
        return session.measure(request, progress)


def test_a_complete_run_is_stored_in_the_project_and_any_other_in_the_cache(tmp_path: Path) -> None:
    _found, whole = measure(Request())
    _found, some = measure(Request(rows=["own"]))
    _found, quick = measure(Request(quick=True))

    assert whole == tmp_path / "checkout" / "benchmarks" / "results" / f"{TODAY}.json"
    assert some == tmp_path / "cache" / "moldau" / "bench" / "results" / f"{TODAY}.json"
    assert quick == some.with_name(f"{TODAY}-2.json")
    assert not list((tmp_path / "cache" / "moldau" / "bench" / "work").iterdir())


def test_measurements_are_stored_in_the_file(tmp_path: Path) -> None:
    found, path = measure(Request(output=tmp_path / "here.json", rounds=2))

    kept = results.load(path)
    assert kept.rows["own"].values(Subject.MOLDAU, "seconds") == [1.0, 1.0]
    assert [outcome.error for _name, _subject, outcome in kept.errors()] == ["KeyError: ''"] * 2
    assert found.rows["own"].values(Subject.MOLDAU, "seconds") == [1.0, 1.0]
    assert [(name, outcome.error) for name, _subject, outcome in found.errors()] == [("fails", "KeyError: ''")] * 2
    assert "no_such_package" in found.skipped["needy"]
    assert found.machine["cores"]
    assert found.commits


def test_an_existing_file_is_only_continued_on_request(tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    found, _path = measure(Request(rows=["own"], output=path))
    found.rows["own"].subjects[Subject.MOLDAU] = [Outcome(1, 1.0, {"seconds": 7.0})]
    results.save(found, path)

    with pytest.raises(SessionError, match="--resume"):
        measure(Request(rows=["own"], output=path))
    resumed, _path = measure(Request(output=path, resume=True, rows=["own"]))
    assert resumed.rows["own"].values(Subject.MOLDAU, "seconds") == [7.0, 1.0, 1.0]
    again, _path = measure(Request(output=path, resume=True, again=True, rows=["own"]))
    assert again.rows["own"].values(Subject.MOLDAU, "seconds") == [1.0, 1.0, 1.0]


def test_a_setting_of_moldau_is_recorded_and_the_result_is_not_stored_in_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[dict[str, str]] = []

    class Server:
        """Only its settings count."""

        def __init__(self, directory: Path, *, config: dict[str, str], data_dir: Path | None, **rest: object) -> None:
            configs.append(config)

        def start(self) -> None:
            pass

        close = start

    def started(bench: Bench) -> Numbers:
        bench.start_server(config={"own": "1", "num.io.threads": "3"})
        return work(bench)

    both = (Subject.APACHE, Subject.MOLDAU)
    row = Row("starts", "a start", "Other", started, subjects=both, own_server=True)
    monkeypatch.setattr(registry, "all_rows", lambda: (row,))
    monkeypatch.setattr(session, "MoldauServer", Server)
    monkeypatch.setattr(session, "ApacheServer", Server)
    monkeypatch.setattr(programs, "missing", lambda needs: {})
    monkeypatch.setattr(programs, "fetch_jars", lambda say: None)
    settings = {"num.io.threads": "5"}
    path = tmp_path / "here.json"
    found, _path = measure(Request(rounds=1, apache=True, output=path, moldau_config=settings))
    assert sorted(config["num.io.threads"] for config in configs) == ["3", "5"], "one of them is Apache Kafka's"
    assert found.settings["Moldau alone"] == "num.io.threads=5"
    assert not session.is_whole(Request(moldau_config=settings))
    with pytest.raises(SessionError, match="other settings"):
        measure(Request(rounds=1, apache=True, output=path, resume=True))


def test_resuming_continues_the_newest_run(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no run to resume"):
        measure(Request(resume=True))
    folder = tmp_path / "checkout" / "benchmarks" / "results"
    for name in ("2026-01-02.json", "2026-01-02-10.json", "2026-01-02-9.json", "2025-12-31-11.json"):
        measure(Request(output=folder / name))
    _found, path = measure(Request(resume=True))

    assert path.name == "2026-01-02-10.json"


def test_results_of_another_machine_are_not_continued(tmp_path: Path) -> None:
    found, path = measure(Request(output=tmp_path / "here.json"))
    found.machine["cpu"] = "abacus"
    results.save(found, path)

    with pytest.raises(SessionError, match="another machine"):
        measure(Request(output=path, resume=True))
    with pytest.raises(SessionError, match="another machine or with other settings"):
        measure(Request(output=path, resume=True, quick=True))


def test_rows_are_selected_by_name_or_by_group() -> None:
    assert session.rows_of(["own"]) == (OWN,)
    assert session.rows_of(["other"]) == (FAILS, NEEDY)
    assert session.rows_of(["needy", "one group"]) == (OWN, NEEDY)
    assert session.rows_of([]) == (OWN, FAILS, NEEDY)
    with pytest.raises(SessionError, match="nonsense"):
        session.rows_of(["own", "nonsense"])


def test_a_report_has_one_file_or_several(tmp_path: Path) -> None:
    page = tmp_path / "checkout" / "docs" / "performance.md"
    page.parent.mkdir(parents=True)
    page.write_text(f"Before.\n{report.BEGIN}\n{report.END}\n")
    for name, value in (("2026-11-21", 7.0), ("2026-11-22", 8.0)):
        found = Results(date=name)
        found.add("own", "some work", "One group", Subject.MOLDAU, Outcome(1, 1.0, {"seconds": value}))
        results.save(found, tmp_path / f"{name}.json")
    first, second = (str(tmp_path / f"2026-11-{day}.json") for day in (21, 22))

    with pytest.raises(SystemExit) as exited:
        main(["bench", "--report", second, "--report", first])
    assert exited.value.code == 0
    both = page.read_text()
    assert [line for line in both.splitlines() if "some work" in line] == [
        f"| some work | time, s | {value} |  |  |  |  |" for value in (7, 8)
    ]
    assert both.index("2026-11-21.json") < both.index("2026-11-22.json")

    with pytest.raises(SystemExit) as exited:
        main(["bench", "--report", second])
    assert exited.value.code == 0
    assert "2026-11-21" not in page.read_text()
    assert "| some work | time, s | 8 |" in page.read_text()


def test_the_duration_of_a_row_is_from_the_newest_file_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "checkout" / "benchmarks" / "results"
    for name, seconds in (("2026-11-21", {"own": 1.0, "fails": 2.0}), ("2026-11-22", {"own": 3.0})):
        found = Results(date=name)
        for row, each in seconds.items():
            found.add(row, "some work", "Group", Subject.MOLDAU, Outcome(1, each, {"seconds": each}))
        results.save(found, folder / f"{name}.json")
    (folder / "2026-11-23.json").write_text("no results")

    assert session.earlier_durations() == {"own": 3.0, "fails": 2.0}


def test_a_run_without_measurable_rows_is_rejected() -> None:
    with pytest.raises(SessionError, match="none of the requested rows"):
        measure(Request(rows=["needy"]))


def test_a_missing_program_is_reported_with_how_to_install_it() -> None:
    lacking = programs.missing(["no_such_package", "pytest"])

    assert list(lacking) == ["no_such_package"]
    assert "pip install" in lacking["no_such_package"]
    with pytest.raises(programs.ProgramError):
        programs.command("no-such-program")


def test_the_remaining_time_is_estimated_from_the_same_row_or_the_average() -> None:
    forecast = Forecast({"own": 10.0})
    steps = [Step(row, Subject.MOLDAU, number) for row in (OWN, NEEDY) for number in (1, 2)]
    forecast.begin(steps)
    assert forecast.seconds_left() == 40.0

    forecast.ended(steps[2], 30.0)
    assert forecast.seconds_left() == 2 * 10.0 + 30.0
    assert [duration(seconds) for seconds in (12.4, 90, 3599, 7500)] == ["12 s", "2 min", "1 h 00 min", "2 h 05 min"]
