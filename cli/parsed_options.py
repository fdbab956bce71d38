"""Callbacks of options with parsed values: durations, points in time."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from ..config.durations import parse_short_duration_ms
from ..config.integers import signed_integer


def parsed(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """The click callback for an option that ``parse`` parses. Its ValueError becomes the usage error's message.

    None stays None; every value of a repeatable option is parsed.
    """

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple(parse(text) for text in value)
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def parse_datetime_ms(text: str) -> int:
    """Milliseconds since 1970, from a number or from ISO 8601 (UTC without an offset). Raises ValueError."""
    milliseconds = signed_integer(text, 64)
    if milliseconds is not None:
        return milliseconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither milliseconds since 1970 nor a time like 2026-01-31T12:00:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


duration_ms = parsed(parse_short_duration_ms)
"""The click callback of an option like ``--older-than 90s``: milliseconds."""

datetime_ms = parsed(parse_datetime_ms)
"""The click callback of an option like ``--from 2026-01-31T12:00:00``: milliseconds since 1970."""
