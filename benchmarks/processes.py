"""Operations on a server's process under Linux: its CPU time, its memory, and stopping it temporarily.

CPU is the kernel's clock of the process (``clock_getcpuclockid``): nanoseconds, user and system, of all its threads,
including ended ones. ``/proc/PID/stat`` counts the same in steps of 10 ms, which is most of the CPU time of a short
measurement, and ``schedstat`` omits threads that have ended. Memory is the sum in ``/proc/PID/smaps_rollup``; the
number in ``statm`` is kept per core and may be slightly wrong.
"""

import ctypes
import os
import signal
import time
from pathlib import Path

from ..protocol.messages.api_versions import ApiVersionsRequest
from ..protocol.messages.metadata import MetadataRequest
from ..testing.wire import WireClient

_LIBC = ctypes.CDLL(None)

# Short compared with the start of a Python process (80 ms), and negligible compared with the CPU of a server's start.
_ASK_AGAIN_SECONDS = 0.001


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    clock = ctypes.c_int()
    error: int = _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock))
    if error:
        raise ProcessLookupError(error, f"no CPU clock of process {pid}")
    return time.clock_gettime(clock.value)


def children(pid: int) -> list[int]:
    """The processes that the main thread of a process has started and that are running."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def name(pid: int) -> str:
    """The name of the process, as ``ps -o comm`` shows it."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def has_ended(pid: int) -> bool:
    """Whether the process has ended, even if its parent does not know that yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(") ")[2].startswith("Z")


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no memory")


def pause(pid: int) -> None:
    """Stop the process, with all its threads, until ``resume``, even if this program ends before that."""
    os.kill(pid, signal.SIGSTOP)


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def exit_reason(pid: int) -> str | None:
    """How ``pid``, a child of this process, has ended; None while it is running."""
    # WNOWAIT: the status stays available to the code that started the process.
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return f"exit code {ended.si_status}" if ended.si_code == os.CLD_EXITED else f"signal {ended.si_status}"


def wait_for_brokers(address: str, pid: int, brokers: int, *, timeout_s: float) -> None:
    """Return when the cluster of a server that responds has this many brokers. See `wait_for_answer`."""
    deadline = time.monotonic() + timeout_s
    with WireClient(address, timeout_s=timeout_s) as wire:
        while len(wire.call(MetadataRequest(topics=[])).brokers) < brokers:
            how = exit_reason(pid)
            if how is not None:
                raise ConnectionError(f"the server at {address} exited before all brokers were running ({how})")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster at {address} has not had {brokers} brokers within {timeout_s:g} s")
            time.sleep(_ASK_AGAIN_SECONDS)


def wait_for_answer(address: str, pid: int, *, timeout_s: float) -> None:
    """Return when the server at ``address`` has responded to ApiVersions: the moment at which a client could begin.

    It is polled from outside, which is the same for every server. ConnectionError if ``pid``, a child of this process,
    ends before that; TimeoutError if it takes too long.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with WireClient(address, timeout_s=max(0.01, deadline - time.monotonic())) as wire:
                wire.call(ApiVersionsRequest(), 0)
            return
        except ConnectionError:
            pass  # not listening yet
        how = exit_reason(pid)
        if how is not None:
            raise ConnectionError(f"the server at {address} exited before it responded ({how})")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server at {address} has not responded within {timeout_s:g} s")
        time.sleep(_ASK_AGAIN_SECONDS)
