"""``moldau registry``: serve a schema registry."""

from __future__ import annotations

import secrets
import sys
from typing import Final

import click

from ..cli.client import bootstrap_option
from ..cli.client_security import security_of_command
from ..cli.failure import Failure
from ..console.serving import is_loopback, listen_on, serve, url_of

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

    brokers = Brokers(bootstrap_server, security_of_command())
    listening = listen_on(listen)
    state = State()
    schemas = SchemasTopic(brokers, topic, state)
    try:
        schemas.start()
        token = None if is_loopback(listening) else secrets.token_urlsafe(24)
        config = uvicorn.Config(
            create_app(Registry(state, schemas), token=token),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
        )
        print(f"{READY_PREFIX}{url_of(listening, listen)}", flush=True)
        if token:
            print(f"moldau: clients need the token (basic.auth.user.info=moldau:{token})", file=sys.stderr)
        serve(uvicorn.Server(config), listening, exit_with_stdin=exit_with_stdin)
    finally:
        schemas.close()
        brokers.close()
