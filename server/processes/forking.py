"""Starts servers as forks of a process that has imported their modules already.

An interpreter and its imports take most of the CPU time of a server's startup, and most of its memory. A fork has both,
and runs the same command as a new interpreter would. What it must not share with its parent, or with earlier forks, is
removed before the command runs: descriptors, so that a pipe ends with its only holder; signal handlers; log handlers.

The parent must have no other threads, because a fork has only the thread that called it. Only Linux forks: on macOS,
libraries of the system fail in a fork.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, NoReturn

from ...protocol.codec import decoder, encoder

logger = logging.getLogger(__name__)

CAN_FORK: Final = sys.platform == "linux"

Main = Callable[[Sequence[str]], object]
"""Runs a command with these arguments. It returns, or raises SystemExit with an exit code."""

_PACKAGE: Final = __name__.partition(".")[0]

_MODULES: Final = (
    "metadata.broker_registration",
    "metadata.brokers",
    "server.cluster.joining",
    "server.main",
    "server.nodes.controller_listener",
    "server.storage.controller_storage",
)
"""With their imports, these are the modules that the brokers of a cluster need to become ready."""

_REQUESTS: Final = ("api_versions", "broker_heartbeat", "broker_registration", "fetch")
"""The modules of the requests to the controller before a broker is ready. Their codecs are compiled in the parent."""


class ForkedChild:
    """A running fork, with the part of `subprocess.Popen` that a supervisor needs."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdin = stdin
        """The only end of the pipe that is the child's standard input."""
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code if the process has ended; a signal is negative."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal. No effect if the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def preload(modules: Sequence[str] = _MODULES) -> None:
    """Import the modules of a broker. Forks share the memory of what is imported now."""
    for name in modules:
        importlib.import_module(f"{_PACKAGE}.{name}")
    for request in _REQUESTS:
        module = importlib.import_module(f"{_PACKAGE}.protocol.messages.{request}")
        name = request.title().replace("_", "")
        version = getattr(module, f"{name}Request").STABLE_VERSIONS.highest
        for message in (getattr(module, f"{name}Request"), getattr(module, f"{name}Response")):
            decoder(message, version)
            encoder(message, version)
    gc.freeze()  # a collection in a fork would write to the shared memory


def start_fork(main: Main, arguments: Sequence[str], *, name: str) -> ForkedChild:
    """Start a fork with pipes to its standard input and from its standard output. Raises OSError."""
    opened: list[int] = []
    try:
        child_stdin, stdin = os.pipe()
        opened += (child_stdin, stdin)
        stdout, child_stdout = os.pipe()
        opened += (stdout, child_stdout)
        pid = fork(main, arguments, (child_stdin, child_stdout), name=name)
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    os.close(child_stdin)
    os.close(child_stdout)
    return ForkedChild(pid, open(stdin, "wb", buffering=0), open(stdout, "rb", buffering=0))


def fork(
    main: Main,
    arguments: Sequence[str],
    standard: Sequence[int],
    *,
    name: str,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a command in a fork. Returns the id of the process. Raises OSError.

    ``standard``: the descriptors of its standard input, output and error; missing ones are those of this process.
    ``name``: what `ps -o comm` and `top` show; at most 15 characters.
    ``environment``: its environment variables, if they are not those of this process.
    """
    assert threading.active_count() == 1, "a fork has only one thread"
    # A signal that arrives before the handlers of this process are removed would be lost in the fork.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _run(main, arguments, standard, name, environment, unblocked)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def _run(
    main: Main,
    arguments: Sequence[str],
    standard: Sequence[int],
    name: str,
    environment: Mapping[str, str] | None,
    unblocked: set[int | signal.Signals],
) -> NoReturn:
    """The fork. Objects of the parent remain in the frames below and are never finalized, so that they cannot close
    descriptors, or remove directories, that are not theirs any longer."""
    code = 1
    try:
        _separate(standard)
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        with suppress(OSError), open("/proc/self/comm", "w") as comm:  # only a name
            comm.write(name)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        main(arguments)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except Exception:
        logger.exception("%s failed with an unexpected error", name)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _separate(standard: Sequence[int]) -> None:
    """Remove what belongs to the parent, as a new program would not have it."""
    os.setsid()  # signals of a terminal reach only the parent
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Each one is copied first: it may be 0, 1 or 2 itself, if the parent was started without them.
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 3) for descriptor in standard]
    for target, descriptor in enumerate(copies):
        os.dup2(descriptor, target)
    for text in os.listdir("/proc/self/fd"):
        if int(text) > 2:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(int(text))
    for handler in list(logging.root.handlers):
        logging.root.removeHandler(handler)
