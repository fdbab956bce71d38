"""A killed test session leaves no process behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from moldau.testing.session_end import VARIABLE

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses pidfd and /proc, which Linux has")

DEADLINE_S = 180

# Stands for pytest: its child, in its own session, starts another process and ends, so that this one has neither
# its parent nor its process group in common with the first.
PROGRAM = """
import subprocess, sys
from moldau.testing.session_end import end_processes_with_this_one
end_processes_with_this_one()
subprocess.run(["sh", "-c", "sleep 1000 >/dev/null & echo $!"], start_new_session=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGTERM, None], ids=["killed", "terminated", "ended"])
def test_processes_end_with_the_session_that_started_them(with_signal: signal.Signals | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as session:
        assert session.stdout is not None
        left = os.pidfd_open(int(session.stdout.readline()))
        try:
            if with_signal is None:
                session.communicate()
            else:
                session.send_signal(with_signal)
            ended, _, _ = select.select([left], [], [], DEADLINE_S)
            assert ended, "a process outlives the session"
        finally:
            os.close(left)


def test_this_session_is_watched() -> None:
    assert os.environ[VARIABLE]
