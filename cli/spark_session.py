"""The Spark of a command: its options, its session, and its log, which is kept back unless it is wanted."""

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

# The numbers of the standard streams.
_OUTPUT: Final = 1
_ERRORS: Final = 2

# What Ivy says when Maven does not have the Kafka connector.
_NO_CONNECTOR: Final = re.compile(r"#spark-sql-kafka-0-10_\S+: not found")

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


def spark_options(function: _Function) -> _Function:
    """The options of every command that starts Spark."""
    for option in (
        click.option("--spark-log", is_flag=True, help="Show what Spark says; without it, it is kept back."),
        click.option(
            "--spark-config",
            "spark_configs",
            multiple=True,
            metavar="KEY=VALUE",
            callback=key_values,
            help="Set one of Spark's settings; repeatable.",
        ),
        click.option(
            "--master", metavar="URL", default="local[*]", show_default=True, help="Where Spark runs its tasks."
        ),
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
        help="Set one of the Kafka client's settings, such as security.protocol; repeatable.",
    )
    return option(function)


def key_values(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """The callback of an option whose values are KEY=VALUE."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", context, parameter)
        found[key] = value
    return found


@contextmanager
def explained() -> Iterator[None]:
    """What a job cannot do ends the command as Failure."""
    from ..spark_integration.archive_layout import ArchiveError
    from ..spark_integration.connector import SparkUnavailableError

    try:
        yield
    except (ArchiveError, SparkUnavailableError) as error:
        raise Failure(str(error)) from error


def session_settings(
    master: str, configs: Mapping[str, str], *, log: bool, packages: Mapping[str, str]
) -> dict[str, str]:
    """Those of the user come before ours, but for ``packages``, which have the jars of the user in them."""
    ours = {**_SETTINGS, "spark.master": master, "spark.log.level": "WARN" if log else "OFF"}
    return {**ours, **configs, **packages}


@contextmanager
def spark_session(
    app_name: str, master: str, configs: Mapping[str, str], *, log: bool, packages: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """Spark for the length of a ``with`` block. ``packages``: settings that bring more jars."""
    from ..spark_integration.session import session

    if not log:
        # pyspark warns of pandas and PyArrow, of which a command uses neither.
        warnings.filterwarnings("ignore", module="pyspark")
    with _log_kept_back(log), explained():
        spark = session(app_name, session_settings(master, configs, log=log, packages=packages or {}))
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _log_kept_back(show: bool) -> Iterator[None]:
    """While a JVM starts: give it other standard streams, and show what it said only when it does not start.

    The JVM keeps what it was started with, so its later words go there, too. None are on standard output, which is the
    command's: the launcher of Spark 3 speaks there.
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
            said = kept.read().decode(errors="replace")
            # Then the error says all that is in Ivy's hundred lines, which --spark-log shows.
            if _NO_CONNECTOR.search(said) is None:
                real.write(said)
            raise


@contextmanager
def _redirected(number: int, target: int) -> Iterator[None]:
    """Have a standard stream, also that of programs that are started meanwhile, go where another one goes."""
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
    """A word that something happens, for whoever looks at a terminal."""
    from rich.console import Console

    return Console(file=file).status("starting Spark")
