"""A server process: signals, the message that the server is ready, logging, and temporary data directories."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .concurrency.clock import MovableClock, wall_clock
from .concurrency.event_loop import new_event_loop
from .concurrency.garbage import Collector
from .concurrency.signals import EndSignals, end_by
from .nodes.server import Server, StartError
from .processes.logs import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..config.broker_config import BrokerConfig
    from .concurrency.clock import Clock
    from .control import Control
    from .nodes.controller_server import ControllerServer
    from .steering import Pipe
    from .storage.ephemeral import EphemeralDirectory

__all__ = ["StartError", "run"]

logger = logging.getLogger(__name__)


def run(
    config: BrokerConfig,
    *,
    data_dir: Path | None,
    ephemeral: bool,
    exit_with_stdin: bool = False,
    control: str | None = None,
    allow_non_empty: bool = False,
    member_of: Collection[int] | None = None,
    durable: bool = True,
    on_ready: Callable[[str], object] | None = None,
) -> int:
    """Serve until a signal (or, with ``exit_with_stdin``, the end of standard input) stops the server.

    Returns the exit code (`signals`).

    ``ephemeral`` keeps the data in a temporary directory, which is removed on exit, and syncs nothing. Leftover
    directories of ephemeral servers that have crashed are removed, too.
    ``control``: the address of `control.Control`.
    ``allow_non_empty``: use a directory that holds other files, and no data yet, as a data directory.
    ``member_of``: the ids of all brokers that a `supervisor` runs, of which this is one. The end of standard input
    stops it.
    ``durable``: false for a broker in the temporary directory of a supervisor; it syncs nothing.
    ``on_ready``: called with the address for clients when the server has printed that it is ready.

    Raises:
        StartError: see `Server.start`.
    """
    if member_of is None:
        log_to_stderr(config, source="%(name)s: ")
    else:
        log_to_stderr(config, source=f"broker {config.node_id} %(name)s: ", broker_id=config.node_id)
    with contextlib.ExitStack() as stack:
        directory: EphemeralDirectory | None = None

        def end_immediately(number: int) -> None:
            """Cancel a shutdown that hangs or takes too long."""
            if not ephemeral:
                end_by(number)
            elif directory is not None and directory.remove():
                os._exit(128 + number)

        signals = EndSignals(end_immediately)
        signals.install(with_core_dumps=ephemeral)  # before there are files that a signal could leave behind
        if ephemeral:
            from .storage.ephemeral import EphemeralDirectory, remove_leftovers  # importing it takes milliseconds

            for path in remove_leftovers():
                logger.info("Removed %s, which a killed server left behind", path)
            config = config.without_static("metadata.log.dir")
            directory = EphemeralDirectory()
            stack.callback(directory.remove)
            log_dirs = [os.path.join(directory.path, "data")]
        else:
            log_dirs = [str(Path(path).absolute()) for path in config.log_dirs] or [str(data_dir)]
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(
                _serve(
                    config,
                    log_dirs,
                    signals,
                    durable=durable and not ephemeral,
                    exit_with_stdin=exit_with_stdin,
                    control_address=control,
                    allow_non_empty=allow_non_empty,
                    member_of=member_of,
                    on_ready=on_ready,
                )
            )
    return signals.exit_status


async def _serve(
    config: BrokerConfig,
    log_dirs: list[str],
    signals: EndSignals,
    *,
    durable: bool,
    exit_with_stdin: bool,
    control_address: str | None,
    allow_non_empty: bool,
    member_of: Collection[int] | None,
    on_ready: Callable[[str], object] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stdin_ended = asyncio.Event()
    pipe: Pipe | None = None
    control: Control | None = None
    clock: Clock = wall_clock
    if exit_with_stdin:
        from .steering import Pipe  # for tests: other servers do not need it

        pipe = Pipe(loop, stdin_ended.set)
        clock = MovableClock()  # the parent process may move it
    if member_of is not None:
        loop.add_reader(0, _read_stdin, loop, stdin_ended)
    if control_address is not None:
        from .control import Control, ControlError

        try:
            control = Control(control_address)
        except ControlError as error:
            raise StartError(str(error)) from error
        clock = MovableClock()
    server: Server | ControllerServer
    if config.roles == {"controller"}:
        from .nodes.controller_server import ControllerServer  # other servers do not need it

        server = ControllerServer(config, log_dirs, durable=durable, clock=clock, allow_non_empty=allow_non_empty)
    else:
        server = Server(config, log_dirs, durable=durable, clock=clock, allow_non_empty=allow_non_empty)
        server.brokers = member_of
    collector = Collector()
    # Startup creates many long-lived objects and hardly any cycles. With 10,000 partitions, a third of its time would
    # be spent in collections that find no garbage.
    gc.disable()
    try:
        if config.has_remote_controllers:
            assert isinstance(server, Server)
            await _start_unless_stopped(server, signals, stdin_ended)
        else:
            await server.start()
        collector.begin()
    finally:
        gc.enable()
    if config.has_remote_controllers and server.broker is None:
        return
    collector.check_regularly(loop)
    if pipe is not None and server.broker is not None:
        pipe.serve(server.broker, server.network)
    if control is not None and server.broker is not None:
        control.start(server.broker, server.network)
        logger.warning("Tests control this server at http://%s", control.address)
    if len(server.addresses) > 1:
        logger.info("Listening on %s", ", ".join(f"{host}:{port}" for host, port in server.addresses))
    if signals.received is None:
        print(f"moldau is ready: {server.bootstrap_servers}", flush=True)
        if on_ready is not None:
            on_ready(server.bootstrap_servers)
    ends: list[asyncio.Future[Any]] = [loop.create_task(signals.wait()), loop.create_task(stdin_ended.wait())]
    lost = server.membership_lost
    await asyncio.wait([*ends, lost] if lost is not None else ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    reason = lost.result() if lost is not None and lost.done() else None
    logger.info("Stopping")
    if control is not None:
        control.close()
    if member_of is not None and stdin_ended.is_set() and isinstance(server, Server):
        await server.brokers_left()  # the supervisor, which would stop them first, has ended
    await server.stop()
    if reason is not None:
        raise StartError(reason)


def _read_stdin(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Standard input is a pipe of the supervisor, which sends nothing."""
    if not os.read(0, 4096):
        loop.remove_reader(0)
        ended.set()


async def _start_unless_stopped(server: Server, signals: EndSignals, stdin_ended: asyncio.Event) -> None:
    """Start a server that waits for other servers. A signal, or the end of standard input, ends the wait."""
    starting = asyncio.create_task(server.start())
    ends: list[asyncio.Task[Any]] = [asyncio.create_task(signals.wait()), asyncio.create_task(stdin_ended.wait())]
    await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
    for end in ends:
        end.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        logger.info("Stopped before the broker had joined the cluster")
