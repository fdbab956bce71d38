"""Options whose value is parsed from what people type: durations, points in time."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from ..config.durations import parse_short_duration_ms
from ..config.integers import signed_integer


def parsed(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """The callback of an option that ``parse`` reads, which raises ValueError with words for people. None stays None,
    and each value of a repeatable option is parsed."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple(parse(text) for text in value)
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def parse_datetime_ms(text: str) -> int:
    """Milliseconds since 1970, given as such or as ISO 8601, in UTC unless it says otherwise; ValueError otherwise."""
    milliseconds = signed_integer(text, 64)
    if milliseconds is not None:
        return milliseconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither milliseconds since 1970 nor a time like 2026-01-31T12:00:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


duration_ms = parsed(parse_short_duration_ms)
"""The callback of an option like ``--older-than 90s``: its value in milliseconds."""

datetime_ms = parsed(parse_datetime_ms)
"""The callback of an option like ``--from 2026-01-31T12:00:00``: its value in milliseconds since 1970."""
