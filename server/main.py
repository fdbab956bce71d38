"""A server as a process: signals, the line that says it is ready, logging, and the directory of a throw-away server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .clock import MovableClock, wall_clock
from .event_loop import new_event_loop
from .server import Server, StartError
from .signals import EndSignals, end_by
from .steering import Pipe

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from .ephemeral import EphemeralDirectory

__all__ = ["StartError", "run"]

logger = logging.getLogger(__name__)


def run(
    config: BrokerConfig,
    *,
    data_dir: Path | None,
    ephemeral: bool,
    exit_with_stdin: bool = False,
    allow_non_empty: bool = False,
) -> int:
    """Serve until a signal (or, with ``exit_with_stdin``, the end of standard input) says to stop.

    Returns the exit code (`signals`).

    ``ephemeral`` keeps the data in a temporary directory, which is removed at the end, and syncs nothing. Those of
    servers that have died are removed, too.
    ``allow_non_empty``: a directory that holds other files, and no data yet, becomes a data directory.

    Raises:
        StartError: see `Server.start`.
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    with contextlib.ExitStack() as stack:
        directory: EphemeralDirectory | None = None

        def end_at_once(number: int) -> None:
            """A stop that takes too long, or hangs, is given up."""
            if not ephemeral:
                end_by(number)
            elif directory is not None and directory.remove():
                os._exit(128 + number)

        signals = EndSignals(end_at_once)
        signals.install(with_core_dumps=ephemeral)  # before there is anything that a signal could leave behind
        if ephemeral:
            from .ephemeral import EphemeralDirectory, remove_leftovers  # what it imports takes milliseconds

            for path in remove_leftovers():
                logger.info("Removed %s, which a server had left that died", path)
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
                    durable=not ephemeral,
                    exit_with_stdin=exit_with_stdin,
                    allow_non_empty=allow_non_empty,
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
    allow_non_empty: bool,
) -> None:
    loop = asyncio.get_running_loop()
    stdin_ended = asyncio.Event()
    pipe = Pipe(loop, stdin_ended.set) if exit_with_stdin else None
    # Whoever started us with a pipe may move the clock.
    clock = MovableClock() if exit_with_stdin else wall_clock
    server = Server(config, log_dirs, durable=durable, clock=clock, allow_non_empty=allow_non_empty)
    # A start makes very much that stays, and hardly any cycles: with 10,000 partitions, a third of its time would go
    # into collections that find nothing.
    gc.disable()
    try:
        await server.start()
    finally:
        gc.enable()
    if pipe is not None and server.broker is not None:
        pipe.serve(server.broker)
    if len(server.addresses) > 1:
        logger.info("Listening on %s", ", ".join(f"{host}:{port}" for host, port in server.addresses))
    # What is there now stays: the collector need not look at it again and again.
    gc.freeze()
    if signals.received is None:
        print(f"moldau is ready: {server.bootstrap_servers}", flush=True)
    ends = [loop.create_task(signals.wait()), loop.create_task(stdin_ended.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    logger.info("Stopping")
    await server.stop()
