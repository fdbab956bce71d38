"""A server as a process: signals, the line that says it is ready, logging, and the directory of a throw-away server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .clock import MovableClock, wall_clock
from .event_loop import new_event_loop
from .server import Server, StartError
from .steering import Pipe

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig

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
    """Serve until a signal (or, with ``exit_with_stdin``, the end of standard input) says to stop; the exit code.

    ``ephemeral`` keeps the data in a temporary directory, which is removed at the end, and syncs nothing.
    ``allow_non_empty``: a directory that holds other files, and no data yet, becomes a data directory.

    Raises:
        StartError: see `Server.start`.
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    with contextlib.ExitStack() as stack:
        if ephemeral:
            import tempfile

            config = config.without_static("metadata.log.dir")
            log_dirs = [stack.enter_context(tempfile.TemporaryDirectory(prefix="moldau-", ignore_cleanup_errors=True))]
        else:
            log_dirs = [str(Path(path).absolute()) for path in config.log_dirs] or [str(data_dir)]
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(
                _serve(
                    config,
                    log_dirs,
                    durable=not ephemeral,
                    exit_with_stdin=exit_with_stdin,
                    allow_non_empty=allow_non_empty,
                )
            )


async def _serve(
    config: BrokerConfig, log_dirs: list[str], *, durable: bool, exit_with_stdin: bool, allow_non_empty: bool
) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    pipe = Pipe(loop, stopping.set) if exit_with_stdin else None
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
    print(f"moldau is ready: {server.bootstrap_servers}", flush=True)
    await stopping.wait()
    # A second signal ends a stop that takes too long.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    logger.info("Stopping")
    await server.stop()
    return 0
