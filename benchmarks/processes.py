"""What the harness asks of Linux about a server's process: its CPU time, its memory, and to stand still.

CPU is the kernel's clock of the process (``clock_getcpuclockid``): nanoseconds, user and system, of all its threads,
the ended ones too. ``/proc/PID/stat`` counts the same in steps of 10 ms, which is most of what a short measurement
uses, and ``schedstat`` forgets threads that have ended. Memory is what ``/proc/PID/smaps_rollup`` adds up page by page;
the number in ``statm`` is kept per core and may be off by some.
"""

import ctypes
import os
import signal
import time
from pathlib import Path

from ..protocol.messages.api_versions import ApiVersionsRequest
from ..testing.wire import WireClient

_LIBC = ctypes.CDLL(None)

# Short beside the start of a Python process (80 ms), and nothing beside the CPU that a start needs.
_ASK_AGAIN_SECONDS = 0.001


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    clock = ctypes.c_int()
    error: int = _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock))
    if error:
        raise ProcessLookupError(error, f"no CPU clock of process {pid}")
    return time.clock_gettime(clock.value)


def resident_bytes(pid: int) -> int:
    """What of a process is in memory now."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no memory")


def pause(pid: int) -> None:
    """The process stands still, with all its threads, until ``resume``. Also when nobody is left to resume it."""
    os.kill(pid, signal.SIGSTOP)


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def how_it_ended(pid: int) -> str | None:
    """How ``pid``, a child of this process, has ended; None while it has not."""
    # WNOWAIT: whoever started the process learns it too.
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return f"exit code {ended.si_status}" if ended.si_code == os.CLD_EXITED else f"signal {ended.si_status}"


def wait_for_answer(address: str, pid: int, *, timeout_s: float) -> None:
    """Return when the server at ``address`` has answered ApiVersions: the moment at which a client could begin.

    Asked from outside, again and again, because that is the same for every server. ConnectionError when ``pid``, a
    child of this process, ends meanwhile, TimeoutError when it takes too long.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with WireClient(address, timeout_s=max(0.01, deadline - time.monotonic())) as wire:
                wire.call(ApiVersionsRequest(), 0)
            return
        except ConnectionError:
            pass  # nobody listens yet
        how = how_it_ended(pid)
        if how is not None:
            raise ConnectionError(f"the server at {address} has ended instead of answering ({how})")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server at {address} has not answered within {timeout_s:g} s")
        time.sleep(_ASK_AGAIN_SECONDS)
