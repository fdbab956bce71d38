"""Signals stop ``moldau serve`` cleanly, and an ephemeral server leaves no files behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moldau.server.concurrency.signals import PATIENCE_SECONDS, EndSignals
from moldau.server.storage.ephemeral import MARKER, EphemeralDirectory, remove_leftovers

DEADLINE_S = 180
# Signals that end a process by default, and that a Python handler can catch.
SIGNALS = [
    *("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF"),
    *("SIGXCPU", "SIGTRAP", "SIGSYS", "SIGIO", "SIGRTMIN", "SIGRTMAX"),
    *(["SIGPWR", "SIGSTKFLT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"] if sys.platform == "linux" else []),
]
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="these signals of faults are handled on Linux only")


def environment() -> dict[str, str]:
    """The environment of this process, without variables that affect signal handling, and without settings."""
    left_out = ("KAFKA_", "PYTHONFAULTHANDLER", "PYTHONDEVMODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment(),
        timeout=DEADLINE_S,
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def start(*options: str, temporary: Path, prefix: tuple[str, ...] = ()) -> "Iterator[subprocess.Popen[str]]":
    command = [*prefix, sys.executable, "-m", "moldau", "serve", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | {"TMPDIR": str(temporary)},
    ) as server:
        try:
            yield server
        finally:
            if server.poll() is None:
                server.kill()


def wait_ready(server: "subprocess.Popen[str]") -> None:
    assert server.stdout is not None
    assert server.stdout.readline().startswith("moldau is ready: ")


@pytest.mark.parametrize("name", SIGNALS)
def test_an_ephemeral_server_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    number = getattr(signal, name)
    with start("--ephemeral", temporary=tmp_path) as server:
        wait_ready(server)
        assert len(list(tmp_path.iterdir())) == 1
        server.send_signal(number)
        _, errors = server.communicate(timeout=DEADLINE_S)
    assert list(tmp_path.iterdir()) == []
    assert server.returncode == (0 if name in ("SIGTERM", "SIGINT") else 128 + number)
    assert "Traceback" not in errors


@only_linux
@pytest.mark.full
def test_an_ephemeral_server_leaves_nothing_behind_whatever_the_signal(tmp_path: Path) -> None:
    stops = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    does_not_end = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ}
    for number in sorted(signal.valid_signals() - {signal.SIGKILL}):
        with start("--ephemeral", temporary=tmp_path) as server:
            wait_ready(server)
            server.send_signal(number)
            expected = {0} if number in (signal.SIGTERM, signal.SIGINT) else {128 + number}
            if number in stops | does_not_end:
                server.send_signal(signal.SIGTERM)
                server.send_signal(signal.SIGCONT)
                expected = {0}
            server.communicate(timeout=DEADLINE_S)
        assert (number, list(tmp_path.iterdir())) == (number, [])
        assert (number, server.returncode) == (number, *expected)


@only_linux
@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_fatal_signal_of_the_process_itself_ends_it(where: str) -> None:
    program = """
import ctypes, resource, sys, threading
from moldau.server.concurrency.signals import EndSignals
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
EndSignals(print).install(with_core_dumps=True)
def fault():
    ctypes.string_at(0)
if sys.argv[1] == "main":
    fault()
thread = threading.Thread(target=fault)
thread.start()
thread.join()
"""
    done = run(program, where)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGSEGV, "", "")


@only_linux
@pytest.mark.parametrize("threads", ["refused", "faulthandler"])
def test_faults_are_not_blocked_where_they_could_not_be_taken_or_have_a_handler(threads: str) -> None:
    program = """
import faulthandler, signal, sys, threading
from moldau.server.concurrency.signals import EndSignals
def refuse(thread):
    raise RuntimeError("can't start new thread")
if sys.argv[1] == "refused":
    threading.Thread.start = refuse
else:
    faulthandler.enable()
EndSignals(print).install(with_core_dumps=True)
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    done = run(program, threads)
    assert (done.stdout, done.stderr) == ("set()\n", "")


@only_linux
@pytest.mark.parametrize("module", ["records.decode_worker", "upkeep.compaction_worker"])
def test_processes_that_an_ephemeral_server_starts_block_nothing(module: str) -> None:
    program = """
import asyncio, sys
from pathlib import Path
from moldau.server.concurrency.signals import EndSignals
from moldau.server.concurrency.worker_pipe import end, start_worker
def blocked(pid):
    return [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigBlk")]
async def main():
    worker = await start_worker("moldau.server." + sys.argv[1])
    print(*blocked("self"), *blocked(worker.pid))
    await end(worker)
EndSignals(print).install(with_core_dumps=True)
asyncio.run(main())
"""
    done = run(program, module)
    assert (done.stdout, done.stderr) == ("SigBlk:\t00000000000004c8 SigBlk:\t0000000000000000\n", "")


@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1"])
def test_a_server_stops_cleanly_and_its_exit_status_names_the_signal(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    with start("--data-dir", str(data), temporary=tmp_path) as server:
        wait_ready(server)
        server.send_signal(getattr(signal, name))
        server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 128 + getattr(signal, name)
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_server_under_nohup_keeps_running_when_its_terminal_is_closed(tmp_path: Path) -> None:
    with start("--data-dir", str(tmp_path / "data"), temporary=tmp_path, prefix=("nohup",)) as server:
        wait_ready(server)
        server.send_signal(signal.SIGHUP)
        server.send_signal(signal.SIGTERM)  # which is handled after it
        server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, pytest.param(signal.SIGSEGV, marks=only_linux)])
def test_a_signal_during_the_start_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """At any moment of the startup: as soon as the directory exists, and then later and later."""
    for delay_lines in range(4):
        with start("--ephemeral", temporary=tmp_path) as server:
            while not list(tmp_path.iterdir()) and server.poll() is None:
                pass
            for _ in range(delay_lines * 50):
                list(tmp_path.rglob("*"))
            server.send_signal(number)
            server.communicate(timeout=DEADLINE_S)
        assert server.returncode == 128 + number
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "signals",
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGHUP, signal.SIGHUP),
        (signal.SIGTERM, signal.SIGHUP),
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGTERM,) * 5,
    ],
    ids=lambda signals: "-".join(number.name for number in signals),
)
def test_concurrent_signals_cause_one_clean_shutdown(tmp_path: Path, signals: tuple[signal.Signals, ...]) -> None:
    """A terminal that closes sends SIGHUP twice, and systemd SIGHUP after SIGTERM."""
    data = tmp_path / "data"
    with start("--data-dir", str(data), temporary=tmp_path) as server:
        wait_ready(server)
        for number in signals:
            server.send_signal(number)
        server.communicate(timeout=DEADLINE_S)
    assert server.returncode in (0, 128 + signal.SIGHUP)  # of two that are pending, Python handles the lower one first
    assert (data / ".kafka_cleanshutdown").exists()


def test_a_later_ctrl_c_does_not_wait_for_the_stop() -> None:
    now = 100.0
    impatient: list[int] = []
    taken = EndSignals(impatient.append, clock=lambda: now)
    taken._received(signal.SIGINT, None)
    taken._received(signal.SIGINT, None)
    now += PATIENCE_SECONDS
    taken._received(signal.SIGTERM, None)
    assert impatient == []
    taken._received(signal.SIGINT, None)
    assert impatient == [signal.SIGINT]
    assert taken.received == signal.SIGINT


def test_a_second_signal_leaves_nothing_behind(tmp_path: Path) -> None:
    with start("--ephemeral", temporary=tmp_path) as server:
        wait_ready(server)
        for _ in range(5):
            server.send_signal(signal.SIGTERM)
        server.communicate(timeout=DEADLINE_S)
    assert list(tmp_path.iterdir()) == []


def test_a_start_removes_only_the_leftovers_of_a_killed_ephemeral_server(tmp_path: Path) -> None:
    foreign = tmp_path / "moldau-looks-like-ours"
    foreign.mkdir()
    (foreign / "precious").write_text("not ours")
    claimed = tmp_path / "moldau-has-a-file-of-that-name"
    claimed.mkdir()
    (claimed / MARKER).write_text("but not our text")
    with start("--ephemeral", temporary=tmp_path) as killed:
        wait_ready(killed)
        (left,) = set(tmp_path.iterdir()) - {foreign, claimed}
        killed.kill()
        killed.communicate(timeout=DEADLINE_S)
    assert left.exists()
    with (
        start("--ephemeral", temporary=tmp_path) as first,
        start("--ephemeral", temporary=tmp_path) as second,
    ):
        wait_ready(first)
        wait_ready(second)
        assert not left.exists()
        assert len(list(tmp_path.iterdir())) == 4, "the living keep theirs"
        for server in (first, second):
            server.terminate()
            server.communicate(timeout=DEADLINE_S)
    assert set(tmp_path.iterdir()) == {foreign, claimed}
    assert (foreign / "precious").read_text() == "not ours"


def test_a_directory_in_use_and_links_are_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used = EphemeralDirectory()
    (tmp_path / "moldau-link").symlink_to(used.path)
    pipe = tmp_path / "moldau-pipe"
    pipe.mkdir()
    os.mkfifo(pipe / MARKER)
    assert remove_leftovers() == []
    assert Path(used.path, MARKER).exists()
    assert used.remove()
    assert not used.remove()
    assert not Path(used.path).exists()


def test_a_broker_of_a_test_that_was_killed_is_removed_by_the_next_one(tmp_path: Path) -> None:
    program = """
import os, sys
from moldau.testing import Broker
broker = Broker().start()
print("started", flush=True)
if sys.argv[1] == "die":
    os.kill(os.getpid(), 9)
broker.close()
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    for end, left in (("die", 1), ("close", 0)):
        done = subprocess.run(
            [sys.executable, "-c", program, end],
            env=environment,
            timeout=DEADLINE_S,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "started\n", done.stderr
        assert len(list(tmp_path.iterdir())) == left
