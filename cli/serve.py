"""``moldau serve``: parse the options, check the configuration, start the server.

Both parsers are built from one table of options: the small one here, which an ordinary start uses, and click's
(``command``), which prints help and usage errors. Everything that the small one does not understand goes to click, so
that usage errors are worded in one place.
"""

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..protocol.named_tuples import NamedTuple
from .loopback import is_loopback

if TYPE_CHECKING:
    import click

    from ..config.broker_config import BrokerConfig, StaticValue
    from .serve_console import ServedConsole

DEFAULT_PORT: Final = 9092
_LOCAL_ORIGIN: Final = "default on loopback"


class Option(NamedTuple):
    """An option of ``serve``; a flag if ``metavar`` is empty, repeatable if ``many``."""

    name: str
    metavar: str
    help: str
    many: bool = False
    hidden: bool = False


OPTIONS: Final = (
    Option(
        "--listen",
        "[NAME://]HOST:PORT",
        "Address to listen on; port 0 selects a free port. Repeatable. Default: the setting listeners, or "
        "127.0.0.1:9092.",
        many=True,
    ),
    Option("--data-dir", "DIRECTORY", "Data directory. Default: a moldau folder in the user's data directory."),
    Option(
        "--allow-non-empty",
        "",
        "Allow a new data directory that contains other files, which are not changed. Required only once.",
    ),
    Option("--ephemeral", "", "Keep the data in a temporary directory that is removed when the server stops."),
    Option(
        "--secure",
        "",
        "TLS, passwords (SCRAM) and ACLs that deny by default. The first start creates certificates and the user admin "
        "beside the data directory, and prints how to connect.",
    ),
    Option("--durable", "", "Flush every append to disk before acknowledging it (sets log.flush.interval.messages=1)."),
    Option(
        "--brokers",
        "N|auto",
        "Start a cluster of N brokers, each in its own process; auto: one per core. The first one listens on the "
        "address of --listen, the others on the following ports, or on free ones.",
    ),
    Option("--config", "FILE", "Read settings from FILE, in the format of Kafka's server.properties."),
    Option("--set", "KEY=VALUE", "Set a Kafka broker setting. Repeatable.", many=True),
    Option(
        "--control",
        "HOST:PORT",
        "For tests: listen for HTTP requests that inject faults, list requests and move the clock. Every program that "
        "reaches this address controls the server.",
    ),
    Option(
        "--metrics",
        "HOST:PORT",
        "Serve metrics for Prometheus over HTTP (sets moldau.metrics.listener), with /healthz and /readyz.",
    ),
    Option("--log-level", "LEVEL", "DEBUG, INFO, WARNING or ERROR (sets moldau.log.level). Default: INFO."),
    Option("--log-format", "text|json", "Log lines of text, or one JSON object per line (sets moldau.log.format)."),
    Option(
        "--console",
        "HOST:PORT",
        "Start the web console of this server, too, as a separate process (needs pip install 'moldau[console]').",
    ),
    Option("--print-config", "", "Print all effective settings and their sources, then exit."),
    Option("--exit-with-stdin", "", "Stop when standard input is closed.", hidden=True),
    Option("--fork-host", "", "Fork servers when requested on standard input.", hidden=True),
    Option("--member-of", "IDS", "Run one of the brokers of --brokers, whose ids these are.", hidden=True),
    Option("--unsynced", "", "With --member-of: do not sync data.", hidden=True),
)

EPILOG: Final = """\b
Examples:
  moldau serve
  moldau serve --listen 0.0.0.0:9092 --data-dir /var/lib/moldau
  moldau serve --listen 127.0.0.1:0 --ephemeral
  moldau serve --config server.properties --set num.partitions=6
  moldau serve --brokers 4
  moldau serve --secure --listen 0.0.0.0:9092

Settings come from --config, KAFKA_... environment variables as in Apache Kafka's Docker image
(KAFKA_LOG_RETENTION_MS is log.retention.ms), --set, and the other options; later sources override earlier ones.
When the server is ready, it prints `moldau is ready: HOST:PORT`, with --brokers the addresses of all brokers. Stop it
with Ctrl-C or SIGTERM.
"""

HELP: Final = "Start a Kafka server."

# Option values by name: a list of values, empty for a flag.
Options = Mapping[str, list[str]]


def parse(arguments: Sequence[str]) -> dict[str, list[str]] | None:
    """The options in ``arguments``; None if click must handle them (help, usage errors)."""
    known = {option.name: option for option in OPTIONS}
    parsed: dict[str, list[str]] = {}
    remaining = list(arguments)
    while remaining:
        name, equals, value = remaining.pop(0).partition("=")
        option = known.get(name)
        if option is None or (option.name in parsed and not option.many):
            return None
        if not option.metavar:
            if equals:
                return None
            parsed[name] = []
            continue
        if not equals:
            if not remaining:
                return None
            value = remaining.pop(0)
        parsed.setdefault(name, []).append(value)
    return parsed


def command() -> "click.Command":
    """The click command, for ``--help`` and for arguments that ``parse`` does not understand."""
    import click

    def callback(**values: object) -> None:
        options: dict[str, list[str]] = {}
        for option in OPTIONS:
            value = values[_parameter(option)]
            if value:
                given = value if isinstance(value, tuple) else (value,)
                options[option.name] = [str(text) for text in given] if option.metavar else []
        sys.exit(run(options))

    parameters: list[click.Parameter] = []
    for option in OPTIONS:
        names = [option.name, _parameter(option)]
        if option.metavar:
            parameter = click.Option(
                names, metavar=option.metavar, multiple=option.many, help=option.help, hidden=option.hidden
            )
        else:
            parameter = click.Option(names, is_flag=True, help=option.help, hidden=option.hidden)
        parameters.append(parameter)
    return click.Command("serve", params=parameters, callback=callback, help=HELP, epilog=EPILOG)


def _parameter(option: Option) -> str:
    return option.name.removeprefix("--").replace("-", "_")


def run(options: Options) -> int:
    """Run the server until it stops. Returns the exit code."""
    # Imports create many objects that stay, and hardly any garbage. The server enables collections when it has started.
    gc.disable()
    try:
        return _run(options)
    finally:
        gc.enable()


def _run(options: Options) -> int:
    from ..config.checks import check_broker_config, warnings
    from ..config.definition import ConfigError

    if "--fork-host" in options:
        return _serve_forks()
    try:
        config = load_config(options, os.environ)
        config = _with_security(options, config)
        check_broker_config(config)
    except ConfigError as error:
        for line in str(error).splitlines():
            _print(line)
        return 1
    member_of = [int(node_id) for node_id in options["--member-of"][0].split(",")] if "--member-of" in options else None
    if member_of is None:
        for line in warnings(config):
            _print(line)
    if "--print-config" in options:
        return _print_config(config)
    if "--brokers" in options and options["--brokers"] != ["1"]:
        from .serve_brokers import run_brokers  # a single server does not need it

        return run_brokers(options, config)
    ephemeral = "--ephemeral" in options
    if not ephemeral and member_of is None:
        _print(f"data directory: {', '.join(config.log_dirs)}")
    try:
        console = _console(options, config)
    except ConfigError as error:
        _print(str(error))
        return 1
    from ..server.asyncio_without_tls import import_asyncio

    import_asyncio()  # before all that imports it
    from ..server.main import run as run_server
    from ..server.nodes.server import StartError

    try:
        return run_server(
            config,
            data_dir=None if ephemeral else Path(config.log_dirs[0]),
            ephemeral=ephemeral,
            exit_with_stdin="--exit-with-stdin" in options,
            control=options["--control"][0] if "--control" in options else None,
            allow_non_empty="--allow-non-empty" in options,
            member_of=member_of,
            durable="--unsynced" not in options,
            on_ready=None if console is None else console.start,
        )
    except StartError as error:
        _print(str(error))
        return 1
    finally:
        if console is not None:
            console.close()


def _console(options: Options, config: "BrokerConfig") -> "ServedConsole | None":
    """The console of ``--console``, not started yet. Raises ConfigError."""
    if "--console" not in options:
        return None
    from .serve_console import ServedConsole  # other servers do not need it

    return ServedConsole(options["--console"][0], config, options)


def _with_security(options: Options, config: "BrokerConfig") -> "BrokerConfig":
    """The settings with those of ``--secure``. Raises ConfigError."""
    if "--secure" in options:
        from .serve_secure import secured  # other servers do not need it

        return secured(
            config,
            _print,
            allow_non_empty="--allow-non-empty" in options,
            has_several_brokers="--member-of" in options or options.get("--brokers", ["1"]) != ["1"],
            is_member="--member-of" in options,
        )
    if "--ephemeral" in options or not config.log_dirs:
        return config
    if os.path.exists(f"{os.path.abspath(config.log_dirs[0])}-security"):
        from .serve_secure import check_not_opened

        check_not_opened(config)
    return config


def _serve_forks() -> int:
    import socket

    from ..server.asyncio_without_tls import import_asyncio
    from ..server.processes.fork_host import ForkHost
    from .main import main

    import_asyncio()  # before all that imports it
    ForkHost(main, socket.socket(fileno=0)).run()
    return 0


def load_config(options: Options, environment: Mapping[str, str]) -> "BrokerConfig":
    """Merge all sources of settings; options override the others. Raises ConfigError."""
    from ..config.definition import ConfigError
    from ..config.sources import StaticValue, load

    if "--ephemeral" in options and "--data-dir" in options:
        raise ConfigError("--ephemeral and --data-dir are mutually exclusive; remove one")
    for other in ("--ephemeral", "--print-config"):
        if "--secure" in options and other in options:
            raise ConfigError(f"--secure and {other} are mutually exclusive; remove one")
    command_line: dict[str, StaticValue] = {}
    if "--data-dir" in options:
        if not options["--data-dir"][0]:
            raise ConfigError("--data-dir is empty; give a directory")
        directory = Path(options["--data-dir"][0]).expanduser().absolute()
        command_line["log.dirs"] = StaticValue(str(directory), "--data-dir")
    if "--metrics" in options:
        command_line["moldau.metrics.listener"] = StaticValue(options["--metrics"][0], "--metrics")
    for option in ("--log-level", "--log-format"):
        if option in options:
            command_line[f"moldau.{option[2:].replace('-', '.')}"] = StaticValue(options[option][0], option)
    if "--durable" in options:
        command_line["log.flush.interval.messages"] = StaticValue("1", "--durable")
    file = Path(options["--config"][0]).expanduser() if "--config" in options else None
    config = load(file=file, environment=environment, overrides=options.get("--set", ()), command_line=command_line)
    if "--listen" in options:
        protocol = "SASL_SSL" if "--secure" in options else "PLAINTEXT"
        config = config.with_static(_listeners(options["--listen"], config.security_protocols, protocol))
    elif "--secure" in options and "listeners" not in config.static:
        listener = f"SASL_SSL://127.0.0.1:{DEFAULT_PORT}"
        config = config.with_static({"listeners": StaticValue(listener, "default of --secure")})
    if not config.log_dirs and "--ephemeral" not in options:
        from .data_directory import default_data_directory

        directory = default_data_directory(environment, sys.platform)
        config = config.with_static({"log.dirs": StaticValue(str(directory), "default data directory")})
    return config if file is not None else _without_group_delays(config)


def _without_group_delays(config: "BrokerConfig") -> "BrokerConfig":
    """If all listeners are on loopback, disable the group rebalance delays that are not configured.

    The delays avoid repeated rebalances while many members start. On a developer's machine they only delay the first
    records: by three seconds in a classic group, and by one heartbeat of five seconds in a KIP-848 group.
    """
    from ..config.definition import ConfigError
    from ..config.sources import StaticValue

    try:
        if not all(is_loopback(listener.host) for listener in config.listeners):
            return config
        shortest = {
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.assignment.interval.ms": config.int("group.consumer.min.assignment.interval.ms"),
        }
    except ConfigError:
        return config  # check_broker_config reports the error with its origin
    return config.with_static(
        {name: StaticValue(str(ms), _LOCAL_ORIGIN) for name, ms in shortest.items() if name not in config.static}
    )


def _listeners(
    addresses: Sequence[str], protocols: Mapping[str, str], protocol: str = "PLAINTEXT"
) -> dict[str, "StaticValue"]:
    """``--listen`` as Kafka settings. Unnamed listeners are named by their protocol: PLAINTEXT, PLAINTEXT_2, ..."""
    from ..config.definition import ConfigError
    from ..config.sources import StaticValue

    listeners = []
    protocol_of = dict(protocols)
    for number, address in enumerate(addresses, 1):
        name, separator, host_and_port = address.rpartition("://")
        if name.lower() in ("http", "https"):
            raise ConfigError(f"--listen {address}: a Kafka listener is not HTTP; use --listen {host_and_port}")
        if not separator:
            name = protocol if number == 1 else f"{protocol}_{number}"
        if host_and_port.isdigit():
            host_and_port = f"127.0.0.1:{host_and_port}"
        elif ":" not in host_and_port:
            host_and_port = f"{host_and_port}:{DEFAULT_PORT}"
        listeners.append(f"{name}://{host_and_port}")
        protocol_of.setdefault(name.upper(), protocol)
    settings = {"listeners": StaticValue(",".join(listeners), "--listen")}
    if protocol_of != protocols:
        protocol_map = ",".join(f"{name}:{protocol}" for name, protocol in protocol_of.items())
        settings["listener.security.protocol.map"] = StaticValue(protocol_map, "--listen")
    return settings


def _print_config(config: "BrokerConfig") -> int:
    from ..config import broker
    from ..config.definition import format_value

    for section in broker.SECTIONS:
        print(f"\n## {section.title}\n")
        for setting in section.settings:
            if setting.internal:
                continue
            if config.origin(setting.name) != "default":
                print(f"# {config.origin(setting.name)}")
            value = config.get(setting.name)
            hidden = setting.is_sensitive and value is not None
            text = config.reference(setting.name) or ("[hidden]" if hidden else format_value(value))
            # A properties file cannot express an unset value; "name=" would be an empty one.
            print(f"# {setting.name} is not set" if text is None else f"{setting.name}={text}")
    return 0


def _print(line: str) -> None:
    print(f"moldau: {line}", file=sys.stderr, flush=True)
