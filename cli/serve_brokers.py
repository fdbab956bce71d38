"""``moldau serve --brokers N``: the commands of the broker processes, from the options of the one that starts them."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ..config.checks import check_broker_config
from ..config.definition import ConfigError
from ..config.sources import StaticValue
from ..log.files import RealFileSystem
from ..server.asyncio_without_tls import import_asyncio
from ..server.processes.forking import CAN_FORK
from ..server.processes.free_ports import FreePorts
from ..server.processes.logs import log_to_stderr
from ..server.processes.members import Member, format_members, plan
from ..server.processes.supervisor import Command, Supervisor, fork_starter, start_interpreter
from ..server.storage.opening import StorageError
from . import main

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig
    from .serve import Options
    from .serve_console import ServedConsole

_REPLACED: Final = frozenset(
    {"--brokers", "--console", "--listen", "--data-dir", "--ephemeral", "--exit-with-stdin", "--metrics"}
)
"""Options that each broker gets as settings instead, or that concern only the parent process."""


def run_brokers(options: "Options", config: "BrokerConfig") -> int:
    """Run the brokers until a signal stops them. Returns the exit code."""
    ephemeral = "--ephemeral" in options
    with ExitStack() as stack:
        ports = FreePorts()
        stack.callback(ports.close)
        try:
            if "--control" in options:
                raise ConfigError("--control and --brokers are mutually exclusive; remove one")
            count = _count(options["--brokers"][0])
            console = _console(options, config)
            log_dirs = list(config.log_dirs)
            if ephemeral:
                from ..server.storage.ephemeral import EphemeralDirectory, remove_leftovers

                remove_leftovers()
                config = config.without_static("metadata.log.dir")
                directory = EphemeralDirectory()
                stack.callback(directory.remove)
                log_dirs = [os.path.join(directory.path, "data")]
            log_dirs = [os.path.abspath(path) for path in log_dirs]
            file_system = RealFileSystem(durable=not ephemeral)
            members = plan(config, log_dirs, count, file_system, ports)
            for member in members:
                check_broker_config(_config_of(config, member))
            if not ephemeral:
                _print(f"data directory: {', '.join(log_dirs)}")
            format_members(config, members, file_system, allow_non_empty="--allow-non-empty" in options)
        except (ConfigError, StorageError) as error:
            for line in str(error).splitlines():
                _print(line)
            return 1
        log_to_stderr(config, source="")
        commands = [Command(member.node_id, _command(options, member, members, ephemeral)) for member in members]
        import_asyncio()  # before all that imports it
        start = fork_starter(main.main) if CAN_FORK else start_interpreter
        if console is not None:
            stack.callback(console.close)
        supervisor = Supervisor(
            commands,
            start,
            time.monotonic,
            exit_with_stdin="--exit-with-stdin" in options,
            on_ready=None if console is None else console.start,
        )
        return supervisor.run()


def _console(options: "Options", config: "BrokerConfig") -> "ServedConsole | None":
    """The console of ``--console``, not started yet. Raises ConfigError."""
    if "--console" not in options:
        return None
    from .serve_console import ServedConsole  # other clusters do not need it

    return ServedConsole(options["--console"][0], config, options)


def _count(text: str) -> int:
    if text == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isdigit():
        raise ConfigError(f"--brokers {text}: give the number of brokers, or auto for one per core")
    return int(text)


def _config_of(config: "BrokerConfig", member: Member) -> "BrokerConfig":
    return config.with_static({name: StaticValue(text, "--brokers") for name, text in member.settings.items()})


def _command(options: "Options", member: Member, members: Sequence[Member], ephemeral: bool) -> list[str]:
    command = ["serve"]
    for name, values in options.items():
        if name in _REPLACED:
            continue
        command += [argument for value in values for argument in (name, value)] if values else [name]
    for name, text in member.settings.items():
        command += ["--set", f"{name}={text}"]
    command += ["--member-of", ",".join(str(each.node_id) for each in members)]
    return [*command, "--unsynced"] if ephemeral else command


def _print(line: str) -> None:
    print(f"moldau: {line}", file=sys.stderr, flush=True)
