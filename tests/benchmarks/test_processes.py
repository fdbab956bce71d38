"""Data of Linux about a process."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from moldau.benchmarks import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks read /proc")

# Works in a thread, and prints a line when the thread has ended. Then it waits.
WORK = """
import sys, threading
worker = threading.Thread(target=lambda: sum(range(2_000_000)))
worker.start()
worker.join()
print("done", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def started() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def child() -> Iterator["subprocess.Popen[str]"]:
    with started() as process:
        yield process


def test_cpu_time_includes_ended_threads(child: "subprocess.Popen[str]") -> None:
    assert child.stdout is not None
    child.stdout.readline()
    ticks = os.sysconf("SC_CLK_TCK")
    with open(f"/proc/{child.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    by_stat = (int(fields[11]) + int(fields[12])) / ticks

    assert processes.cpu_seconds(child.pid) == pytest.approx(by_stat, abs=3 / ticks)
    assert processes.cpu_seconds(child.pid) > 0.01


def test_a_stopped_process_uses_no_cpu(child: "subprocess.Popen[str]") -> None:
    processes.pause(child.pid)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    before = processes.cpu_seconds(child.pid)
    with started() as other:  # it does the same work in the meantime
        assert other.stdout is not None
        assert other.stdout.readline() == "done\n"
    assert processes.cpu_seconds(child.pid) == before

    processes.resume(child.pid)
    assert child.stdout is not None
    assert child.stdout.readline() == "done\n"
    assert processes.cpu_seconds(child.pid) > before


def test_memory_is_about_that_of_a_python_process(child: "subprocess.Popen[str]") -> None:
    assert child.stdout is not None
    child.stdout.readline()

    assert 2_000_000 < processes.resident_bytes(child.pid) < 200_000_000


def test_the_wait_ends_when_the_server_exits() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        with pytest.raises(ConnectionError, match=r"exited before it responded .*exit code 0"):
            processes.wait_for_answer("127.0.0.1:1", process.pid, timeout_s=60)
        assert process.wait() == 0


def test_how_a_process_has_ended(child: "subprocess.Popen[str]") -> None:
    assert processes.exit_reason(child.pid) is None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert processes.exit_reason(child.pid) == "signal 9"
    assert child.wait() == -9
