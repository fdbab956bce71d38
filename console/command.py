"""``moldau console``: serve the web console of a cluster."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from ..cli.client import bootstrap_option
from ..cli.client_security import security_of_command
from ..cli.failure import Failure
from ..cli.listen_address import parse_address
from ..cli.top.discovery import address_of
from .serving import is_loopback, listen_on, serve, url_of

if TYPE_CHECKING:
    from .schema_registry import SchemaRegistry

_DEFAULT_LISTEN: Final = "127.0.0.1:8080"
READY_PREFIX: Final = "moldau console is ready: "


@click.command("console", short_help="Serve a web console for a cluster.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=_DEFAULT_LISTEN,
    show_default=True,
    help="Address of the console; port 0 selects a free port. Elsewhere than on loopback, a token protects it.",
)
@click.option("--read-only", is_flag=True, help="Refuse everything that changes the cluster.")
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="The address of `moldau serve --control`: adds a screen that injects faults and moves the clock, for tests.",
)
@click.option(
    "--registry",
    metavar="URL",
    help="The address of a schema registry: records with the id of a schema are decoded. May have USER:PASSWORD@.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    multiple=True,
    help="The address of a broker's metrics, with the software and latencies of clients; repeatable. Brokers of Moldau "
    "name theirs.",
)
@click.option("--exit-with-stdin", is_flag=True, hidden=True, help="Stop when standard input is closed.")
@bootstrap_option
def command(
    listen: str,
    read_only: bool,
    control: str | None,
    registry: str | None,
    metrics: tuple[str, ...],
    exit_with_stdin: bool,
    bootstrap_server: str,
) -> None:
    """Serve a web console for a cluster: topics, records, groups.

    The console is a separate process and an ordinary client, so it works with Moldau and with Apache Kafka. It needs
    the extra `console`: pip install 'moldau[console]'.

    \b
    Examples:
      moldau console
      moldau console -b kafka.example:9092 --read-only
      moldau console --registry http://127.0.0.1:8081
      moldau console --metrics kafka.example:9404
      moldau console --listen 127.0.0.1:0
    """
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as missing:
        raise Failure(f"the console needs {missing.name}; install it with: pip install 'moldau[console]'") from None
    from .app import create_app
    from .brokers import Brokers
    from .faults import Control

    controlled = None if control is None else Control(*parse_address(control, "--control"))
    brokers = Brokers(bootstrap_server, security_of_command())
    schemas = None if registry is None else _registry(registry)
    measured = [address_of(text) for text in metrics]
    listening = listen_on(listen)
    token = None if is_loopback(listening) else secrets.token_urlsafe(24)
    app = create_app(brokers, read_only=read_only, token=token, control=controlled, registry=schemas, metrics=measured)
    print(f"{READY_PREFIX}{url_of(listening, listen)}/{f'?token={token}' if token else ''}", flush=True)
    if token:
        print("moldau: the console is not on loopback: who has this link controls the cluster", file=sys.stderr)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="on")
    config.timeout_graceful_shutdown = 1  # live pages never end by themselves
    serve(uvicorn.Server(config), listening, exit_with_stdin=exit_with_stdin)


def _registry(url: str) -> SchemaRegistry:
    """The registry at an address. Raises Failure, BadParameter."""
    try:
        import fastavro  # noqa: F401
        import google.protobuf  # noqa: F401
    except ImportError as missing:
        raise Failure(f"--registry needs {missing.name}; install it with: pip install 'moldau[registry]'") from None
    from .schema_registry import SchemaRegistry

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.BadParameter(f"{url!r} is not http://HOST:PORT", param_hint="--registry")
    return SchemaRegistry(url)
