"""The run: the order in which servers are started, warmed up, stopped and measured; stored results and failures."""

from moldau.benchmarks.results import Outcome
from moldau.benchmarks.row import Bench, Numbers, Subject

from .conftest import FakeMachine

MOLDAU, APACHE, CEILING = Subject.MOLDAU, Subject.APACHE, Subject.CEILING


def test_subjects_alternate_and_only_the_measured_one_runs(machine: FakeMachine) -> None:
    machine.run(machine.row(), rounds=2)

    turn = {
        subject: [f"resume {subject}", f"measure row {subject} 1000", f"pause {subject}"]
        for subject in (APACHE, MOLDAU, CEILING)
    }
    one_round = [*turn[APACHE], *turn[MOLDAU], *turn[CEILING]]
    warming = [
        event
        for subject in (APACHE, MOLDAU, CEILING)
        for event in (f"start {subject}", f"measure row {subject} 500", f"pause {subject}")
    ]
    closing = [f"close {subject}" for subject in (CEILING, MOLDAU, APACHE)]
    assert machine.events == [*warming, *one_round, *one_round, *closing]


def test_each_measurement_is_saved_immediately_and_the_warmup_is_not_counted(machine: FakeMachine) -> None:
    machine.run(machine.row(), rounds=3)

    assert machine.saved == 9
    assert machine.results.rows["row"].values(MOLDAU, "requests_per_s") == [1000.0, 1000.0, 1000.0]
    assert [step.round for step in machine.begun] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_rows_run_one_after_the_other_with_new_servers(machine: FakeMachine) -> None:
    machine.run(machine.row("first"), machine.row("second"), rounds=1, subjects=(MOLDAU,))

    assert machine.events == [
        *("start moldau", "measure first moldau 500", "pause moldau"),
        *("resume moldau", "measure first moldau 1000", "pause moldau", "close moldau"),
        *("start moldau", "measure second moldau 500", "pause moldau"),
        *("resume moldau", "measure second moldau 1000", "pause moldau", "close moldau"),
    ]


def test_a_row_can_omit_subjects_and_have_its_own_number_of_rounds(machine: FakeMachine) -> None:
    machine.run(machine.row(subjects=(APACHE, MOLDAU), rounds=1), rounds=5)

    assert [(step.subject, step.round) for step, _outcome in machine.ended] == [
        *((APACHE, 0), (MOLDAU, 0)),
        *((APACHE, 1), (MOLDAU, 1)),
    ]


def test_less_work_is_less_of_everything(machine: FakeMachine) -> None:
    machine.run(machine.row(rounds=7), rounds=1, subjects=(MOLDAU,), scale=0.02)

    assert [event for event in machine.events if event.startswith("measure")] == [
        "measure row moldau 10",
        "measure row moldau 20",
    ]


def test_a_row_with_its_own_servers_starts_them_and_leaves_none(machine: FakeMachine) -> None:
    def restart(bench: Bench) -> Numbers:
        server = bench.start_server()
        server.kill()
        server.start()
        return {"seconds": 1.0}

    machine.run(machine.row(measure=restart, own_server=True), rounds=2, subjects=(APACHE, MOLDAU))

    one = {
        subject: [
            f"measure row {subject} 1000",
            *(f"{event} {subject}" for event in ("start", "kill", "start", "close")),
        ]
        for subject in (APACHE, MOLDAU)
    }
    assert machine.events == [*one[APACHE], *one[MOLDAU], *one[APACHE], *one[MOLDAU]]


def test_a_failed_measurement_is_stored_and_the_next_round_has_a_new_server(machine: FakeMachine) -> None:
    attempts: list[Subject] = []

    def fail_once(bench: Bench) -> Numbers:
        attempts.append(bench.subject)
        if attempts.count(MOLDAU) == 2 and bench.subject is MOLDAU:
            raise ValueError("no answer")
        return {"requests_per_s": 1.0}

    machine.run(machine.row(measure=fail_once), rounds=2, subjects=(APACHE, MOLDAU))

    first, second = machine.results.rows["row"].subjects[MOLDAU]
    assert first.error == "ValueError: no answer"
    assert first.numbers == {}
    assert second.error is None
    assert second.numbers == {"requests_per_s": 1.0}
    assert [outcome.error for outcome in machine.results.rows["row"].subjects[APACHE]] == [None, None]
    assert machine.results.errors() == [("row", MOLDAU, first)]
    # The one that failed is killed; the second round warms another one up.
    assert machine.events.count("kill moldau") == 1
    assert machine.events.count("start moldau") == 2
    assert machine.events.count("measure row moldau 500") == 2


def test_a_subject_whose_warmup_fails_fails_in_each_round_and_does_not_stop_the_run(machine: FakeMachine) -> None:
    def apache_fails(bench: Bench) -> Numbers:
        if bench.subject is APACHE:
            raise ConnectionError("gone")
        return {"requests_per_s": 1.0}

    machine.run(machine.row("one", apache_fails), machine.row("two"), rounds=2, subjects=(APACHE, MOLDAU))

    assert [outcome.error for outcome in machine.results.rows["one"].subjects[APACHE]] == ["ConnectionError: gone"] * 2
    assert len(machine.results.rows["one"].values(MOLDAU, "requests_per_s")) == 2
    assert len(machine.results.rows["two"].values(APACHE, "requests_per_s")) == 2


def test_a_server_that_exits_during_its_work_has_failed(machine: FakeMachine) -> None:
    machine.ended_servers[MOLDAU] = "signal 13"

    machine.run(machine.row(), rounds=1, subjects=(APACHE, MOLDAU))

    (outcome,) = machine.results.rows["row"].subjects[MOLDAU]
    assert outcome.error == "RuntimeError: the server exited (signal 13)"
    assert machine.results.rows["row"].values(APACHE, "requests_per_s") == [1000.0]


def test_the_error_of_the_client_follows_that_of_the_server(machine: FakeMachine) -> None:
    def fails(_bench: Bench) -> Numbers:
        raise ConnectionError("reset")

    machine.ended_servers[MOLDAU] = "exit code 1"
    machine.run(machine.row(measure=fails), rounds=1, subjects=(MOLDAU,))

    (outcome,) = machine.results.rows["row"].subjects[MOLDAU]
    assert outcome.error == "RuntimeError: the server exited (exit code 1)\nConnectionError: reset"


def test_a_resumed_run_measures_missing_and_failed_rounds(machine: FakeMachine) -> None:
    row = machine.row(subjects=(APACHE, MOLDAU))
    done = Outcome(1, 1.0, {"requests_per_s": 5.0})
    machine.results.add(row.name, row.title, row.group, APACHE, done)
    machine.results.add(row.name, row.title, row.group, APACHE, Outcome(2, 1.0, error="it broke"))
    machine.results.add(row.name, row.title, row.group, MOLDAU, done)
    machine.results.add(row.name, row.title, row.group, MOLDAU, Outcome(2, 1.0, {"requests_per_s": 6.0}))

    machine.run(row, rounds=2)

    assert [(step.subject, step.round) for step, _outcome in machine.ended] == [(APACHE, 0), (APACHE, 2)]
    assert machine.results.rows["row"].values(APACHE, "requests_per_s") == [5.0, 1000.0]
    assert machine.results.rows["row"].values(MOLDAU, "requests_per_s") == [5.0, 6.0]
    assert machine.results.errors() == []


def test_no_server_is_started_for_a_complete_row(machine: FakeMachine) -> None:
    row = machine.row(subjects=(MOLDAU,))
    machine.results.add(row.name, row.title, row.group, MOLDAU, Outcome(1, 1.0, {"requests_per_s": 5.0}))

    machine.run(row, rounds=1)

    assert machine.events == []
    assert machine.saved == 0
