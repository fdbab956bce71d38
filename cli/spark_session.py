"""The Spark session of a command: its options and its log, which is hidden unless --spark-log is given."""

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from .failure import Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Function = TypeVar("_Function", bound=Callable[..., object])

# File descriptors of the standard streams.
_OUTPUT: Final = 1
_ERRORS: Final = 2

# Ivy's message if Maven does not have the Kafka connector.
_NO_CONNECTOR: Final = re.compile(r"#spark-sql-kafka-0-10_\S+: not found")

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


def spark_options(function: _Function) -> _Function:
    """Add the options of every command that starts Spark."""
    for option in (
        click.option("--spark-log", is_flag=True, help="Show Spark's log output."),
        click.option(
            "--spark-config",
            "spark_configs",
            multiple=True,
            metavar="KEY=VALUE",
            callback=key_values,
            help="Spark setting; repeatable.",
        ),
        click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Spark master."),
    ):
        function = option(function)
    return function


def client_option(function: _Function) -> _Function:
    """Settings of the Kafka clients inside the job."""
    option = click.option(
        "--client-config",
        "client_configs",
        multiple=True,
        metavar="KEY=VALUE",
        callback=key_values,
        help="Kafka client setting, such as security.protocol; repeatable.",
    )
    return option(function)


def key_values(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """The click callback of an option with KEY=VALUE values."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", context, parameter)
        found[key] = value
    return found


@contextmanager
def explained() -> Iterator[None]:
    """Convert the errors of a job to Failure."""
    from ..spark_integration.archive_layout import ArchiveError
    from ..spark_integration.connector import SparkUnavailableError

    try:
        yield
    except (ArchiveError, SparkUnavailableError) as error:
        raise Failure(str(error)) from error


def session_settings(
    master: str, configs: Mapping[str, str], *, log: bool, packages: Mapping[str, str]
) -> dict[str, str]:
    """The user's settings override the defaults, except ``packages``, which include the user's jars."""
    ours = {**_SETTINGS, "spark.master": master, "spark.log.level": "WARN" if log else "OFF"}
    return {**ours, **configs, **packages}


@contextmanager
def spark_session(
    app_name: str, master: str, configs: Mapping[str, str], *, log: bool, packages: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """A Spark session as a context manager. ``packages``: settings that add jars."""
    from ..spark_integration.session import session

    if not log:
        # pyspark warns about pandas and PyArrow, which the commands do not use.
        warnings.filterwarnings("ignore", module="pyspark")
    with _log_shown_on_failure(log), explained():
        spark = session(app_name, session_settings(master, configs, log=log, packages=packages or {}))
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _log_shown_on_failure(show: bool) -> Iterator[None]:
    """Redirect the standard streams while a JVM starts, and show its output only if it fails to start.

    The JVM keeps the streams it was started with, so its later output is redirected too. Standard output is reserved
    for the command; the launcher of Spark 3 writes to it.
    """
    if show:
        with _redirected(_OUTPUT, _ERRORS):
            yield
        return
    with tempfile.TemporaryFile() as kept, os.fdopen(os.dup(2), "w", encoding="utf-8") as real:
        try:
            with _redirected(_OUTPUT, kept.fileno()), _redirected(_ERRORS, kept.fileno()), _status(real):
                yield
        except BaseException:
            kept.seek(0)
            text = kept.read().decode(errors="replace")
            # The error contains everything relevant in Ivy's hundred lines, which --spark-log shows.
            if _NO_CONNECTOR.search(text) is None:
                real.write(text)
            raise


@contextmanager
def _redirected(number: int, target: int) -> Iterator[None]:
    """Redirect a standard stream, including that of child processes started meanwhile, to another one."""
    sys.stdout.flush()
    sys.stderr.flush()
    real = os.dup(number)
    os.dup2(target, number)
    try:
        yield
    finally:
        os.dup2(real, number)
        os.close(real)


def _status(file: Any) -> Any:
    """A status line on a terminal."""
    from rich.console import Console

    return Console(file=file).status("starting Spark")
