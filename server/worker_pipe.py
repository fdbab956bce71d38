"""What the processes have in common that compute for a server: messages over two pipes, and an end with the server.

    message     length int32 | length of the rest int32 | a pickled tuple | the rest

The rest is what is a `pickle.PickleBuffer` in the tuple, at most one: a large batch is not copied into the pickled
tuple and out of it. What arrives in its place is bytes.

Both ends of the pipes are ours, so the messages are trusted. The child's end is `begin`, `read_messages` and `send`;
the server's is `start_worker`, `receive`, `kill` and `end`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from typing import Any, BinaryIO

from .background import ProcessNotStartedError, start_process

NICENESS = 10
"""Requests go first."""
LENGTH_BYTES = 4
_DISCARDED_BYTES = 1 << 16
_LARGE_BYTES = 1 << 20
READY = ("ready",)
"""The first message of a child, which can take jobs from then on."""

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1


def message(content: tuple[object, ...]) -> bytes:
    """The bytes of a message without a rest."""
    data = pickle.dumps(content)
    return len(data).to_bytes(LENGTH_BYTES, "big") + bytes(LENGTH_BYTES) + data


def parts(content: tuple[object, ...]) -> tuple[bytes, bytes | memoryview]:
    """The bytes of a message, and its rest."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(content, protocol=5, buffer_callback=buffers.append)
    rest = buffers[0].raw() if buffers else b""
    return len(data).to_bytes(LENGTH_BYTES, "big") + len(rest).to_bytes(LENGTH_BYTES, "big") + data, rest


# The server's end


async def start_worker(module: str) -> Process:
    """The process that runs this module of the package, ready for its first job.

    Raises:
        ProcessNotStartedError: the system refuses, or the process ended before it was ready.
    """
    process = await start_process(
        sys.executable,
        # Not from where the server happens to have been started, but what the server itself imports.
        "-P",
        "-m",
        module,
        environment=os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
    )
    try:
        ready = await receive(process)
        assert ready == READY, ready
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise ProcessNotStartedError(f"the process ended with {await ended(process)} before it could work") from error
    except BaseException:
        await end(process)
        raise
    return process


async def end(process: Process) -> int:
    """Kill the process, whatever it does; the exit status."""
    kill(process)
    return await ended(process)


def kill(process: Process) -> None:
    """Kill the process, which may have ended unnoticed."""
    if process.returncode is None:
        # `process.kill` would look first whether it has ended, and take the exit status from the loop, which then waits
        # for it for ever.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def ended(process: Process) -> int:
    """The exit status of a process that ends by itself or was killed, when its pipes are closed too."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    # asyncio waits for the end of the output, and a stream of which much is unread does not get there.
    while await process.stdout.read(_DISCARDED_BYTES):
        pass
    return await process.wait()


async def receive(process: Process) -> Any:
    """The next message.

    Raises:
        IncompleteReadError, ConnectionError: the process has ended.
    """
    assert process.stdout is not None
    lengths = await process.stdout.readexactly(2 * LENGTH_BYTES)
    length, rest = int.from_bytes(lengths[:LENGTH_BYTES], "big"), int.from_bytes(lengths[LENGTH_BYTES:], "big")
    data = await process.stdout.readexactly(length)
    if not rest:
        return pickle.loads(data)
    content = pickle.loads(data, buffers=[await process.stdout.readexactly(rest)])
    if rest > _LARGE_BYTES:
        await asyncio.sleep(0)  # a copy of so much takes a while: requests go in between
    return content


# The child's end


def begin() -> BinaryIO:
    """Make this process a worker; the result is where its messages go."""
    # A Ctrl-C at the terminal is meant for the server, which ends this process when it has stopped.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_the_server()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints must not come between the messages
    return output


def _die_with_the_server() -> None:
    """Also when this process is stopped (SIGSTOP), or held up in a system call, and so does not see the end of its
    input. Only Linux has that."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def read_messages(put: Callable[[Any], None]) -> None:
    """Hand over each message; in a thread of its own, which only waits: it must see the end of the server while the
    process computes. The end of the input is the end of the server, however it ended, and of this process, at once."""
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
        os._exit(0)  # the server was killed, and this shows before the end of the input does
