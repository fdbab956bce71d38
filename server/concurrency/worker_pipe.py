"""Common parts of the processes that compute for a server: messages over two pipes, and an exit with the server.

    message     length int32 | length of the rest int32 | a pickled tuple | the rest

The rest is the data of the `pickle.PickleBuffer` in the tuple, of which there is at most one. So a large batch is not
copied into the pickled tuple and out of it. The receiver gets bytes in its place.

Both ends of the pipes belong to this program, so the messages are trusted. The child uses `begin`, `read_messages` and
`send`. The server uses `start_worker`, `receive`, `kill` and `end`.

The functions import `pickle` themselves: a server needs it only for a worker, and `load_ahead` imports it soon after
startup.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

from .background import ProcessNotStartedError, start_process
from .signals import unblock_faults

if TYPE_CHECKING:
    from pickle import PickleBuffer

NICENESS = 10
"""Requests have priority."""
LENGTH_BYTES = 4
_DISCARDED_BYTES = 1 << 16
_LARGE_BYTES = 1 << 20
READY = ("ready",)
"""The first message of a child. From then on, it accepts jobs."""

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1


def message(content: tuple[object, ...]) -> bytes:
    """The bytes of a message without a rest."""
    import pickle

    data = pickle.dumps(content)
    return len(data).to_bytes(LENGTH_BYTES, "big") + bytes(LENGTH_BYTES) + data


def parts(content: tuple[object, ...]) -> tuple[bytes, bytes | memoryview]:
    """The bytes of a message, and its rest."""
    import pickle

    buffers: list[PickleBuffer] = []
    data = pickle.dumps(content, protocol=5, buffer_callback=buffers.append)
    rest = buffers[0].raw() if buffers else b""
    return len(data).to_bytes(LENGTH_BYTES, "big") + len(rest).to_bytes(LENGTH_BYTES, "big") + data, rest


# The server's side


async def start_worker(module: str) -> Process:
    """Start a process that runs ``module`` of the package, and wait until it is ready for its first job.

    Raises:
        ProcessNotStartedError: the system refuses, or the process exited before it was ready.
    """
    process = await start_process(
        sys.executable,
        # Import the modules that the server itself imports, not those in the directory from which it was started.
        "-P",
        "-m",
        module,
        environment=os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
    )
    try:
        ready = await receive(process)
        assert ready == READY, ready
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise ProcessNotStartedError(f"the process exited with {await ended(process)} during its start") from error
    except BaseException:
        await end(process)
        raise
    return process


async def end(process: Process) -> int:
    """Kill the process unconditionally. Returns the exit status."""
    kill(process)
    return await ended(process)


def kill(process: Process) -> None:
    """Kill the process, which may have exited unnoticed."""
    if process.returncode is None:
        # `process.kill` would first check whether the process has exited, and consume its exit status. The event loop
        # would then wait for the exit status forever.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def ended(process: Process) -> int:
    """Wait until a process has exited by itself or was killed, and its pipes are closed. Returns the exit status."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    # asyncio waits for the end of the output, which a stream with much unread data does not reach.
    while await process.stdout.read(_DISCARDED_BYTES):
        pass
    return await process.wait()


async def receive(process: Process) -> Any:
    """Receive the next message.

    Raises:
        IncompleteReadError, ConnectionError: the process has exited.
    """
    import pickle

    assert process.stdout is not None
    lengths = await process.stdout.readexactly(2 * LENGTH_BYTES)
    length, rest = int.from_bytes(lengths[:LENGTH_BYTES], "big"), int.from_bytes(lengths[LENGTH_BYTES:], "big")
    data = await process.stdout.readexactly(length)
    if not rest:
        return pickle.loads(data)
    content = pickle.loads(data, buffers=[await process.stdout.readexactly(rest)])
    if rest > _LARGE_BYTES:
        await asyncio.sleep(0)  # copying this much takes a while; let requests run in between
    return content


# The child's side


def begin() -> BinaryIO:
    """Turn this process into a worker. Returns the stream to which its messages are written."""
    # Ctrl-C at the terminal is meant for the server, which ends this process after its own shutdown.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unblock_faults()
    _die_with_the_server()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not mix with the messages
    return output


def _die_with_the_server() -> None:
    """Exit with the server even if the end of the input is not noticed.

    That is so while this process is stopped (SIGSTOP), or blocked in a system call. Only Linux supports this.
    """
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def read_messages(put: Callable[[Any], None]) -> None:
    """Pass each message to ``put``, until the input ends. Then this process exits immediately.

    The input ends when the server exits, for any reason. This must run in a dedicated thread, which only waits, to
    notice the exit of the server while the process computes.
    """
    import pickle

    stream = sys.stdin.buffer
    while True:
        lengths = stream.read(2 * LENGTH_BYTES)
        data = stream.read(int.from_bytes(lengths[:LENGTH_BYTES], "big"))
        length = int.from_bytes(lengths[LENGTH_BYTES:], "big")
        rest = stream.read(length) if length else b""
        if not data or len(rest) < length:
            os._exit(0)
        put(pickle.loads(data, buffers=[rest] if length else ()))
        del rest


def send(stream: BinaryIO, content: tuple[object, ...]) -> None:
    """Send a message to the server."""
    try:
        for part in parts(content):
            stream.write(part)
        stream.flush()
    except BrokenPipeError:
        os._exit(0)  # the server was killed, which is noticed here before the end of the input
