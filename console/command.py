"""``moldau console``: serve the web console of a cluster."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from typing import Any, Final

import click

from ..cli.client import bootstrap_option
from ..cli.client_security import security_of_command
from ..cli.failure import Failure

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
@click.option("--exit-with-stdin", is_flag=True, hidden=True, help="Stop when standard input is closed.")
@bootstrap_option
def command(listen: str, read_only: bool, control: str | None, exit_with_stdin: bool, bootstrap_server: str) -> None:
    """Serve a web console for a cluster: topics, records, groups.

    The console is a separate process and an ordinary client, so it works with Moldau and with Apache Kafka. It needs
    the extra `console`: pip install 'moldau[console]'.

    \b
    Examples:
      moldau console
      moldau console -b kafka.example:9092 --read-only
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

    host, port = _parse_address(listen, "--listen")
    controlled = None if control is None else Control(*_parse_address(control, "--control"))
    brokers = Brokers(bootstrap_server, security_of_command())
    try:
        listening = socket.create_server((host, port), family=_family(host, port))
    except (OSError, OverflowError) as error:
        raise Failure(f"cannot listen on {listen}: {getattr(error, 'strerror', None) or error}") from None
    token = None if _is_loopback(listening) else secrets.token_urlsafe(24)
    app = create_app(brokers, read_only=read_only, token=token, control=controlled)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/"
    print(f"{READY_PREFIX}{address}{f'?token={token}' if token else ''}", flush=True)
    if token:
        print("moldau: the console is not on loopback: who has this link controls the cluster", file=sys.stderr)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="on")
    config.timeout_graceful_shutdown = 1  # live pages never end by themselves
    server = uvicorn.Server(config)
    if exit_with_stdin:
        threading.Thread(target=_exit_with_stdin, args=(server,), name="stdin", daemon=True).start()
    server.run(sockets=[listening])


def _exit_with_stdin(server: Any) -> None:
    """Stop the server when the parent process, which holds the other end of standard input, has ended."""
    while os.read(0, 4096):
        pass
    server.should_exit = True


def _parse_address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _family(host: str, port: int) -> socket.AddressFamily:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        raise Failure(f"cannot listen on {host}: {error.strerror or error}") from None


def _is_loopback(listening: socket.socket) -> bool:
    import ipaddress

    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback
