"""`moldau serve --brokers N`: starts the broker processes, restarts those that end, and stops them in order.

The parent process serves nothing itself. It starts all brokers in parallel and prints one line when all of them are
ready. A broker that ends is started again, after a pause that grows with each short run. At shutdown the brokers
without the controller stop first, in parallel, while the controller can still move their leaderships. The broker with
the controller stops last.

On Linux, the brokers are forks of the parent, which has imported their modules (`forking`). Elsewhere, each one is a
new interpreter.

The standard input of each broker is a pipe that only the parent holds. When the parent ends, even by SIGKILL, the pipe
closes, and the broker shuts down. Each broker has its own process group, so that Ctrl-C in a terminal reaches only the
parent.

If a broker exits before it was ready for the first time, a restart would not help: an address is in use, for example.
The broker has logged the reason; the parent stops the others and fails.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import IO, TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from .forking import Main

READY_PREFIX: Final = "moldau is ready: "

MIN_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 10.0
_LONG_RUN_S: Final = 5.0
"""A broker that ran longer than this is restarted after the shortest pause."""

_PATIENCE_S: Final = 1.0
"""A SIGINT that arrives this long after the first signal kills the brokers, as for a single server."""

_ALWAYS: Final = (signal.SIGTERM, signal.SIGINT)
_ENDING: Final = (*_ALWAYS, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""A signal that is ignored when the process begins stays ignored, except the first two (`concurrency.signals`)."""

logger = logging.getLogger(__name__)


class Command(NamedTuple):
    """How to start one broker."""

    node_id: int
    arguments: Sequence[str]
    """The arguments of `moldau`."""


class Child(Protocol):
    """What the supervisor needs of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    @property
    def stdin(self) -> IO[bytes] | None: ...

    @property
    def stdout(self) -> IO[bytes] | None: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...


Start = Callable[[Command], Child]
"""Starts a broker with pipes to its standard input and from its standard output. Raises OSError."""


def start_interpreter(command: Command) -> Child:
    """Start a broker in a new interpreter."""
    program = [sys.executable, "-m", __package__.partition(".")[0]]
    return subprocess.Popen(
        [*program, *command.arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0
    )


def fork_starter(main: Main) -> Start:
    """Starts brokers as forks of this process, which must have no other threads. ``main`` runs the command."""
    from .forking import preload, start_fork

    preload()
    return lambda command: start_fork(main, command.arguments, name=f"moldau-{command.node_id}")


def next_pause(previous_s: float, ran_s: float) -> float:
    """The pause before the next start of a broker that ran for ``ran_s`` seconds; ``previous_s`` is the last pause."""
    if ran_s >= _LONG_RUN_S or previous_s == 0:
        return MIN_PAUSE_S
    return min(previous_s * 2, MAX_PAUSE_S)


class _Process:
    """One broker, over all its runs."""

    def __init__(self, command: Command, start: Start, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.node_id = command.node_id
        self._command = command
        self._start_child = start
        self._child: Child | None = None
        self._started_at = 0.0
        self._pause_s = 0.0
        self._line = b""
        self.restart_at: float | None = None
        self.is_ready = False
        self.was_ready = False
        self.address = ""

    @property
    def is_running(self) -> bool:
        return self._child is not None

    @property
    def pid(self) -> int:
        """The id of a running process."""
        assert self._child is not None
        return self._child.pid

    @property
    def output(self) -> IO[bytes]:
        """The standard output of a running broker."""
        assert self._child is not None
        assert self._child.stdout is not None
        return self._child.stdout

    def start(self) -> None:
        """Start the process. Raises OSError."""
        self.restart_at = None
        self._line = b""
        self._started_at = self._clock()
        self._child = self._start_child(self._command)

    def read(self) -> bool:
        """Read what the broker has printed. Returns whether it has become ready."""
        data = self.output.read(4096)
        *lines, self._line = (self._line + (data or b"")).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            if text.startswith(READY_PREFIX):
                self.address = text.removeprefix(READY_PREFIX).split()[0]
                self.is_ready = self.was_ready = True
                return True
        return False

    def has_ended(self) -> int | None:
        """The exit code if the process has ended since the last call; a signal is negative."""
        if self._child is None or self._child.poll() is None:
            return None
        child, self._child = self._child, None
        self.is_ready = False
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        return child.returncode

    def restart_later(self) -> float:
        """Set when the broker is started again, and return the pause."""
        now = self._clock()
        self._pause_s = next_pause(self._pause_s, now - self._started_at)
        self.restart_at = now + self._pause_s
        return self._pause_s

    def send(self, number: int) -> None:
        """Send a signal to the process if it is running."""
        if self._child is not None:
            self._child.send_signal(number)


class Supervisor:
    """See the module docstring. It handles the signals of the process: one at a time, in the main thread."""

    def __init__(
        self,
        commands: Sequence[Command],
        start: Start,
        clock: Callable[[], float],
        *,
        exit_with_stdin: bool = False,
        on_ready: Callable[[str], None] | None = None,
    ) -> None:
        """The first command is that of the broker with the controller. ``clock`` is monotonic, in seconds.

        ``on_ready`` receives the addresses of all brokers when they are ready for the first time.
        """
        self._clock = clock
        self._processes = [_Process(command, start, clock) for command in commands]
        self._exit_with_stdin = exit_with_stdin
        self._on_ready = on_ready
        self._selector = selectors.DefaultSelector()
        self._readable, self._writable = socket.socketpair()
        self._signal: int | None = None
        self._signal_at = 0.0
        self._is_stopping = False
        self._is_first_stopping = False
        self._is_killing = False
        self._has_printed = False
        self._failed = False

    def run(self) -> int:
        """Run until a signal, or the end of standard input, has stopped all brokers. Returns the exit code."""
        self._readable.setblocking(False)
        self._writable.setblocking(False)
        signal.set_wakeup_fd(self._writable.fileno(), warn_on_full_buffer=False)
        for number in _ENDING:
            if number in _ALWAYS or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._received)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # only wakes up the loop
        self._selector.register(self._readable, selectors.EVENT_READ, self._woken)
        if self._exit_with_stdin:
            self._selector.register(0, selectors.EVENT_READ, self._read_stdin)
        for process in self._processes:
            self._start(process)
        while any(process.is_running or process.restart_at is not None for process in self._processes):
            for key, _ in self._selector.select(self._seconds_until_restart()):
                callback: Callable[[], None] = key.data
                callback()
            self._reap()
            self._restart_due()
            if self._signal is not None and not self._is_stopping:
                logger.info("Stopping all brokers")
                self._stop()
            self._stop_next()
        if self._failed:
            return 1
        if self._is_killing:
            return 128 + signal.SIGINT
        received = self._signal
        return 0 if received is None or received in _ALWAYS else 128 + received

    # Events

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if self._signal is None:
            self._signal = number
            self._signal_at = self._clock()
        elif number == signal.SIGINT and self._clock() - self._signal_at >= _PATIENCE_S:
            self._is_killing = True

    def _woken(self) -> None:
        try:
            while self._readable.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _read_stdin(self) -> None:
        if not os.read(0, 4096):
            self._selector.unregister(0)
            self._stop()

    def _read(self, process: _Process) -> None:
        if not process.is_running or not process.read():
            return
        logger.info("Broker %d is ready: %s, process %d", process.node_id, process.address, process.pid)
        if not self._has_printed and all(each.is_ready for each in self._processes):
            self._has_printed = True
            addresses = ",".join(each.address for each in self._processes)
            print(READY_PREFIX + addresses, flush=True)
            if self._on_ready is not None:
                self._on_ready(addresses)

    # Processes

    def _start(self, process: _Process) -> None:
        try:
            process.start()
        except OSError as error:
            logger.error("Cannot start broker %d: %s", process.node_id, error.strerror or error)
            self._ended(process, 1)
            return
        self._selector.register(process.output, selectors.EVENT_READ, lambda: self._read(process))

    def _reap(self) -> None:
        for process in self._processes:
            if process.is_running:
                output = process.output
                code = process.has_ended()
                if code is not None:
                    self._selector.unregister(output)
                    self._ended(process, code)

    def _ended(self, process: _Process, code: int) -> None:
        if self._is_stopping:
            if code:
                logger.warning("Broker %d ended with %s", process.node_id, _described(code))
            return
        if not process.was_ready:
            print(f"moldau: broker {process.node_id} cannot start, so all brokers stop", file=sys.stderr, flush=True)
            self._failed = True
            self._stop()
            return
        pause_s = process.restart_later()
        logger.error(
            "Broker %d ended with %s; it is started again in %.1f s", process.node_id, _described(code), pause_s
        )

    def _seconds_until_restart(self) -> float | None:
        times = [process.restart_at for process in self._processes if process.restart_at is not None]
        return max(0.0, min(times) - self._clock()) if times else None

    def _restart_due(self) -> None:
        for process in self._processes:
            if process.restart_at is not None and process.restart_at <= self._clock():
                self._start(process)

    # Shutdown

    def _stop(self) -> None:
        """Begin to stop: the brokers without the controller first."""
        self._is_stopping = True
        for process in self._processes:
            process.restart_at = None
        for process in self._processes[1:]:
            process.send(signal.SIGTERM)

    def _stop_next(self) -> None:
        if not self._is_stopping:
            return
        if self._is_killing:
            for process in self._processes:
                process.send(signal.SIGKILL)
        elif not self._is_first_stopping and not any(process.is_running for process in self._processes[1:]):
            self._is_first_stopping = True
            self._processes[0].send(signal.SIGTERM)


def _described(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
