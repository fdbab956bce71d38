"""`moldau spark audit` before Spark is started: invalid arguments are reported in one sentence, with exit code 2.

Audits with Spark are in `spark_integration/tests/test_audit_command.py`.
"""

from pathlib import Path

import pytest

from .conftest import Run


def test_a_missing_audit_topic_is_reported(ask: Run, bootstrap_servers: str) -> None:
    audited = ask("spark", "audit", "--audit-topic", "no-counts-here")

    assert audited.code == 2
    assert f"there is no topic no-counts-here at {bootstrap_servers}, so there are no counts" in audited.err
    assert audited.text == ""


def test_an_unreachable_server_is_reported(run: Run, unused_port: int) -> None:
    audited = run("spark", "audit", "--bootstrap-server", f"127.0.0.1:{unused_port}")

    assert audited.code == 2
    assert f"no Kafka server responds at 127.0.0.1:{unused_port}" in audited.err


def test_a_folder_that_is_not_an_archive_is_rejected(ask: Run, tmp_path: Path) -> None:
    audited = ask("spark", "audit", "--archive", str(tmp_path))

    assert audited.code == 2
    assert f"{tmp_path} is not an archive" in audited.err


@pytest.mark.parametrize("duration", ["10", "m", "-5m", "1.5.2s", "10 m", "1w"])
def test_a_duration_is_a_number_with_a_unit(ask: Run, duration: str) -> None:
    audited = ask("spark", "audit", f"--watermark={duration}")

    assert audited.code == 2
    assert f"'{duration}' is not a duration like 90s, 10m, 1h or 7d" in audited.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--window", "0s"), "the length of a window must be greater than 0"),
        (("--from", "2026-01-02", "--until", "2026-01-01"), "the time range is empty"),
        (("--from", "yesterday"), "'yesterday' is neither milliseconds since 1970 nor a time"),
        (("--plot", "books.gif"), "books.gif is neither .svg nor .png"),
        (("--plot", "no-such-folder/books.svg"), "there is no folder no-such-folder"),
        (("--plot", "books.svg", "--follow"), "--plot and --follow are mutually exclusive"),
    ],
)
def test_invalid_options_are_rejected(ask: Run, arguments: tuple[str, ...], message: str) -> None:
    audited = ask("spark", "audit", *arguments)

    assert audited.code == 2
    assert message in audited.err
