"""The lock that keeps two processes from downloading Spark's packages at the same time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from moldau.spark_integration.connector import JARS, PACKAGES
from moldau.spark_integration.ivy_lock import IVY, ivy_lock, lock_file

_WAIT_SECONDS = 180

# Acquires the lock of the folder in its argument, says so, and ends with its standard input.
_OTHER = """
import sys
from moldau.spark_integration.connector import PACKAGES
from moldau.spark_integration.ivy_lock import IVY, ivy_lock
with ivy_lock({PACKAGES: "a:b:1", IVY: sys.argv[1]}):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {PACKAGES: "a:b:1", IVY: str(tmp_path / "ivy")}


def _locks(settings: dict[str, str], locked: threading.Event) -> None:
    with ivy_lock(settings):
        locked.set()


def test_another_process_waits(settings: dict[str, str]) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _OTHER, settings[IVY]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    with other:
        assert other.stdout.readline() == "locked\n"
        locked = threading.Event()
        thread = threading.Thread(target=_locks, args=(settings, locked))
        thread.start()
        assert not locked.wait(0.2)
        other.stdin.close()
        assert locked.wait(_WAIT_SECONDS)
        thread.join(_WAIT_SECONDS)


def test_the_lock_of_a_killed_process_is_free(settings: dict[str, str]) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _OTHER, settings[IVY]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    with other:
        assert other.stdout.readline() == "locked\n"
        other.kill()
        other.wait(_WAIT_SECONDS)
        with ivy_lock(settings):
            pass


def test_jars_need_no_lock(settings: dict[str, str]) -> None:
    with ivy_lock({JARS: "a.jar", IVY: settings[IVY]}):
        assert not lock_file(settings).exists()


def test_a_folder_that_cannot_be_written_is_no_error(
    settings: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ivy").write_text("a file", encoding="utf-8")
    with ivy_lock(settings):
        assert "no lock for the download" in caplog.text


def test_the_default_is_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert lock_file({}) == tmp_path / "moldau" / "ivy.lock"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert lock_file({}) == tmp_path / "home" / ".cache" / "moldau" / "ivy.lock"
