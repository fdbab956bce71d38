"""Connecting to a server: the address option, the first connection, and kafka-python's producer and consumer.

Moldau's own connection first checks that a Kafka server listens, because kafka-python would retry for half a minute.
kafka-python's log is silenced, because every relevant error is also an exception. Its codecs are replaced with
Moldau's, because it would otherwise require one package per codec.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from .client_security import Security, properties_of_command, security_of_command, security_options
from .connection import CLIENT_ID, Connection, PeerError
from .failure import Failure

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer

DEFAULT_BOOTSTRAP_SERVER: Final = "127.0.0.1:9092"
BOOTSTRAP_SERVERS_VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"
CONNECT_TIMEOUT_S: Final = 5.0
_BOOTSTRAP_TIMEOUT_MS: Final = 10_000
_REQUEST_TIMEOUT_MS: Final = 15_000

_Function = TypeVar("_Function", bound=Callable[..., object])


def bootstrap_option(function: _Function) -> _Function:
    """The options of every command that connects to a server: ``--bootstrap-server``, TLS and SASL."""
    return address_option(security_options(function))


def address_option(function: _Function) -> _Function:
    """The option ``--bootstrap-server``."""
    option = click.option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_SERVERS_VARIABLE,
        show_envvar=True,
        default=DEFAULT_BOOTSTRAP_SERVER,
        show_default=True,
        callback=_checked_addresses,
        help="Server to connect to; separate several with commas.",
    )
    return option(function)


def _checked_addresses(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if context.get_parameter_source(str(parameter.name)) is ParameterSource.DEFAULT:
        value = properties_of_command().get("bootstrap.servers", value)
    try:
        parse_addresses(value)
    except click.BadParameter as error:
        assert parameter.name is not None
        if context.get_parameter_source(parameter.name) is ParameterSource.ENVIRONMENT:
            error.param_hint = f"environment variable {BOOTSTRAP_SERVERS_VARIABLE}"
        raise
    return value


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """``HOST:PORT,...`` as hosts and ports; the default port is 9092."""
    addresses = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        _, is_url, after_scheme = entry.partition("://")
        if is_url:
            address = after_scheme.partition("/")[0] or "HOST:PORT"
            raise click.BadParameter(f"{entry!r} is a URL; use {address}", param_hint="--bootstrap-server")
        host, colon, port = entry.rpartition(":")
        if not colon or entry.endswith("]"):
            host, port = entry, "9092"
        if not (port.isascii() and port.isdecimal() and len(port) <= 5) or not 0 < int(port) < 65536:
            raise click.BadParameter(f"{entry!r} is not HOST:PORT", param_hint="--bootstrap-server")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise click.BadParameter("the address is empty; give at least one HOST:PORT", param_hint="--bootstrap-server")
    return addresses


def connect(bootstrap_server: str, *, security: Security | None = None, client_id: str = CLIENT_ID) -> Connection:
    """A connection to the first address that accepts one, with the security of the command or the given one.

    Raises Failure if no address does.
    """
    used = security_of_command() if security is None else security
    problems = []
    for host, port in parse_addresses(bootstrap_server):
        try:
            return Connection(host, port, timeout_s=CONNECT_TIMEOUT_S, security=used, client_id=client_id)
        except PeerError as problem:
            problems.append(f"cannot reach {host}:{port}: {problem}")
    raise Failure(
        "; ".join(problems) + "\nIs the server running? `moldau serve` starts one; --bootstrap-server or "
        f"{BOOTSTRAP_SERVERS_VARIABLE} selects another address."
    )


@contextmanager
def producer(bootstrap_server: str, **settings: Any) -> "Iterator[KafkaProducer]":
    """A producer as a context manager, which flushes on exit. Errors of kafka-python become Failure."""
    with _explained(bootstrap_server):
        from kafka import KafkaProducer

        _use_bundled_codecs()
        client = KafkaProducer(**_settings(bootstrap_server), **settings)
        try:
            yield client
            client.flush()
        except BaseException:
            _give_up(client)
            raise
        client.close(timeout=5)


def _give_up(client: "KafkaProducer") -> None:
    """Close a producer without delivering its pending records.

    The producer's own ``close`` would wait for them and replace the original exception with its timeout.
    """
    from kafka.errors import KafkaTimeoutError

    try:
        client.close(timeout=0)
    except KafkaTimeoutError:
        client._sender.force_close()  # there is no public API
        with suppress(KafkaTimeoutError):
            client.close(timeout=1)


@contextmanager
def consumer(bootstrap_server: str, **settings: Any) -> "Iterator[KafkaConsumer]":
    """A consumer without a group as a context manager. Errors of kafka-python become Failure."""
    with _explained(bootstrap_server):
        from kafka import KafkaConsumer

        _use_bundled_codecs()
        client = KafkaConsumer(
            **_settings(bootstrap_server),
            group_id=None,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            **settings,
        )
        try:
            yield client
        finally:
            client.close(autocommit=False)


def error_text(error: object) -> str:
    """The text of a kafka-python error, with the Kafka error code's name if there is one."""
    message = getattr(error, "message", None)
    arguments = getattr(error, "args", ())
    detail = next((str(argument) for argument in arguments if argument), "")
    if message and detail and detail != message:
        return f"{message}: {detail}"
    return str(message or detail or error)


@contextmanager
def _explained(bootstrap_server: str) -> Iterator[None]:
    connect(bootstrap_server).close()
    _silence_log()
    from kafka import errors

    try:
        yield
    except (errors.KafkaTimeoutError, errors.KafkaConnectionError) as error:
        raise Failure(
            f"{bootstrap_server} accepts connections but did not respond in time ({error_text(error)})\n"
            "Is it a Kafka server, and are its advertised addresses reachable? Run `moldau doctor` to check."
        ) from error
    except errors.KafkaError as error:
        raise Failure(error_text(error)) from error


def _settings(bootstrap_server: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": [f"{_bracketed(host)}:{port}" for host, port in parse_addresses(bootstrap_server)],
        "client_id": CLIENT_ID,
        "bootstrap_timeout_ms": _BOOTSTRAP_TIMEOUT_MS,
        "request_timeout_ms": _REQUEST_TIMEOUT_MS,
        **security_of_command().of_kafka_python(),
    }


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _silence_log() -> None:
    import logging

    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


def _use_bundled_codecs() -> None:
    """Make kafka-python use the compression libraries that Moldau already depends on."""
    from kafka import codec as availability
    from kafka.record import default_records

    from ..protocol.compression import Codec, compress, decompress

    for kind in (Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        name = kind.name.lower()
        setattr(availability, "zstd" if kind is Codec.ZSTD else name, compress)
        setattr(default_records, f"{name}_encode", lambda data, kind=kind: compress(kind, data))
        setattr(default_records, f"{name}_decode", lambda data, kind=kind: bytes(decompress(kind, data)))
