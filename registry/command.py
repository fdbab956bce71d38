"""``moldau registry``: serve a schema registry."""

from __future__ import annotations

import ipaddress
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

_DEFAULT_LISTEN: Final = "127.0.0.1:8081"
_DEFAULT_TOPIC: Final = "_schemas"
READY_PREFIX: Final = "moldau registry is ready: "


@click.command("registry", short_help="Serve a schema registry.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=_DEFAULT_LISTEN,
    show_default=True,
    help="Address of the registry; port 0 selects a free port. Elsewhere than on loopback, a token protects it.",
)
@click.option(
    "--topic", default=_DEFAULT_TOPIC, show_default=True, help="The topic with the schemas; it is created if missing."
)
@click.option("--exit-with-stdin", is_flag=True, hidden=True, help="Stop when standard input is closed.")
@bootstrap_option
def command(listen: str, topic: str, exit_with_stdin: bool, bootstrap_server: str) -> None:
    """Serve a schema registry: Confluent's REST API for Avro, JSON Schema and Protobuf.

    The registry is a separate process and an ordinary client, so it works with Moldau and with Apache Kafka. Schemas
    are in a compacted topic, in the format of Confluent's registry. It needs the extra `registry`:
    pip install 'moldau[registry]'.

    \b
    Examples:
      moldau registry
      moldau registry -b kafka.example:9092 --listen 127.0.0.1:8081
      curl http://127.0.0.1:8081/subjects
    """
    try:
        import fastavro  # noqa: F401
        import grpc_tools  # noqa: F401
        import jsonschema  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as missing:
        raise Failure(f"the registry needs {missing.name}; install it with: pip install 'moldau[registry]'") from None
    from ..console.brokers import Brokers
    from .app import create_app
    from .registry import Registry
    from .state import State
    from .topic import SchemasTopic

    host, port = _parse_address(listen)
    brokers = Brokers(bootstrap_server, security_of_command())
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise Failure(f"cannot listen on {listen}: {error.strerror or error}") from None
    state = State()
    schemas = SchemasTopic(brokers, topic, state.apply)
    try:
        schemas.start()
        token = None if _is_loopback(listening) else secrets.token_urlsafe(24)
        config = uvicorn.Config(
            create_app(Registry(state, schemas), token=token),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
        )
        server = uvicorn.Server(config)
        if exit_with_stdin:
            threading.Thread(target=_exit_with_stdin, args=(server,), name="stdin", daemon=True).start()
        print(f"{READY_PREFIX}http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}", flush=True)
        if token:
            print(f"moldau: clients need the token (basic.auth.user.info=moldau:{token})", file=sys.stderr)
        server.run(sockets=[listening])
    finally:
        schemas.close()
        brokers.close()


def _exit_with_stdin(server: Any) -> None:
    """Stop the server when the parent process, which holds the other end of standard input, has ended."""
    while os.read(0, 4096):
        pass
    server.should_exit = True


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback
