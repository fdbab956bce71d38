"""`moldau spark audit` before Spark is started: what is wrong is said in a sentence, and with the exit code 2.

Audits with Spark are in `spark_integration/test_audit_command.py`.
"""

from pathlib import Path

import pytest

from .conftest import Run


def test_without_an_audit_topic_there_is_nothing_to_balance(ask: Run, bootstrap_servers: str) -> None:
    audited = ask("spark", "audit", "--audit-topic", "nobody-counts-here")

    assert audited.code == 2
    assert f"there is no topic nobody-counts-here at {bootstrap_servers}, so nobody has counted anything" in audited.err
    assert audited.text == ""


def test_a_server_that_is_not_there_is_named(run: Run, unused_port: int) -> None:
    audited = run("spark", "audit", "--bootstrap-server", f"127.0.0.1:{unused_port}")

    assert audited.code == 2
    assert f"no Kafka server answers at 127.0.0.1:{unused_port}" in audited.err


def test_a_folder_that_is_no_archive_is_refused(ask: Run, tmp_path: Path) -> None:
    audited = ask("spark", "audit", "--archive", str(tmp_path))

    assert audited.code == 2
    assert f"{tmp_path} is not an archive" in audited.err


@pytest.mark.parametrize("duration", ["10", "m", "-5m", "1.5.2s", "10 m", "1w"])
def test_a_duration_is_a_number_with_a_unit(ask: Run, duration: str) -> None:
    audited = ask("spark", "audit", f"--watermark={duration}")

    assert audited.code == 2
    assert f"'{duration}' is not a duration like 90s, 10m, 1h or 7d" in audited.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--window", "0s"), "the length of a window must be greater than 0"),
        (("--from", "2026-01-02", "--until", "2026-01-01"), "the time range is empty"),
        (("--from", "yesterday"), "'yesterday' is neither milliseconds since 1970 nor a time"),
        (("--plot", "books.gif"), "books.gif is neither .svg nor .png"),
        (("--plot", "no-such-folder/books.svg"), "there is no folder no-such-folder"),
        (("--plot", "books.svg", "--follow"), "--plot draws a finished audit"),
    ],
)
def test_options_that_make_no_sense_are_refused(ask: Run, arguments: tuple[str, ...], said: str) -> None:
    audited = ask("spark", "audit", *arguments)

    assert audited.code == 2
    assert said in audited.err
