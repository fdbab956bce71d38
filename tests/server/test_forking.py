"""Forks of a process that has imported a server: what they keep and what they do not share with their parent."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from moldau.server.processes.forking import CAN_FORK

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="other systems start new interpreters")

# A parent with all that a fork must not share. Its forks report on standard output how they differ from it.
PARENT = """
import json, logging, os, signal, socket, sys
from moldau.server.processes.forking import preload, start_fork

def received(number, frame):
    pass

def main(arguments):
    if arguments[0] == "fail":
        raise ValueError("failed in the fork")
    if arguments[0] != "report":
        sys.exit(int(arguments[0]))
    assert sys.stdin.read() == "from the parent"  # until the end: no other process has this pipe
    print(json.dumps({
        "descriptors": [number for number in range(1000) if os.path.exists(f"/proc/self/fd/{number}")],
        "handled": [int(each) for each in signal.valid_signals() if signal.getsignal(each) is received],
        "ignores_sigpipe": signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN,
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "wakeup": signal.set_wakeup_fd(-1),
        "log_handlers": len(logging.root.handlers),
        "is_session_leader": os.getsid(0) == os.getpid(),
        "comm": open("/proc/self/comm").read().strip(),
        "preloaded": "moldau.server.main" in sys.modules,
    }), flush=True)

preload()
logging.basicConfig()
readable, writable = socket.socketpair()
writable.setblocking(False)
for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1):
    signal.signal(number, received)
signal.set_wakeup_fd(writable.fileno())
first = start_fork(main, ["report"], name="first")
second = start_fork(main, ["report"], name="second")  # while the parent has the pipes of the first
reports = []
for child in (first, second):
    child.stdin.write(b"from the parent")
    child.stdin.close()
    reports.append(json.loads(child.stdout.readline()))
codes = []
for argument in ("7", "0", "fail"):
    child = start_fork(main, [argument], name="ends")
    child.stdout.read()
    while child.poll() is None:
        signal.sigtimedwait([], 0.01)
    codes.append(child.returncode)
killed = start_fork(main, ["report"], name="killed")
killed.send_signal(signal.SIGKILL)
killed.stdout.read()
while killed.poll() is None:
    signal.sigtimedwait([], 0.01)
killed.send_signal(signal.SIGTERM)  # it has no effect
print(json.dumps({"reports": reports, "codes": [*codes, killed.returncode]}))
"""


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ValueError: failed in the fork") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_a_fork_has_the_modules_and_nothing_else_of_its_parent(result: dict[str, Any], number: int) -> None:
    assert result["reports"][number] == {
        "descriptors": [0, 1, 2],
        "handled": [],
        "ignores_sigpipe": True,
        "blocked": [],
        "wakeup": -1,
        "log_handlers": 0,
        "is_session_leader": True,
        "comm": ("first", "second")[number],
        "preloaded": True,
    }


def test_the_exit_codes_of_forks_are_those_of_programs(result: dict[str, Any]) -> None:
    assert result["codes"] == [7, 0, 1, -9]
