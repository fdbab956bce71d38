"""Durations, in the format of Kafka's settings and tools and in a short format for the command line.

The first is ISO 8601 with days, hours, minutes and seconds, ``P1DT2H30M``; the other a number and a unit, ``90s``.
"""

import re
from math import inf
from typing import Final

from .integers import signed_integer

_NUMBER: Final = r"[-+]?\d+"
# Compiled when they are first needed, which few servers ever do.
_DURATION: Final = (
    rf"(?P<sign>[-+]?)P(?:(?P<days>{_NUMBER})D)?"
    rf"(?:T(?=[-+\d])(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?"
    rf"(?:(?P<seconds>{_NUMBER})(?:[.,](?P<fraction>\d{{0,9}}))?S)?)?"
)
_SHORT: Final = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"

_SECONDS_BOUND: Final = 1 << 63


def parse_duration_ms(text: str) -> int:
    """A duration in milliseconds, rounded down; ValueError for any other text. Every part may have a sign.

    As in Java, each part and the total in seconds are 64-bit numbers.
    """
    found = re.fullmatch(_DURATION, text, re.IGNORECASE | re.ASCII)
    if found is None or len(text.lstrip("+-")) == 1:
        raise _not_a_duration(text)
    seconds = 0
    for unit, unit_seconds in (("days", 86_400), ("hours", 3600), ("minutes", 60), ("seconds", 1)):
        count = signed_integer(found[unit] or "0", 64)
        if count is None:
            raise _not_a_duration(text)
        seconds += count * unit_seconds
    if not -_SECONDS_BOUND <= seconds < _SECONDS_BOUND:
        raise _not_a_duration(text)
    fraction = int((found["fraction"] or "").ljust(9, "0")[:3])
    if (found["seconds"] or "").startswith("-"):
        fraction = -fraction
    milliseconds = seconds * 1000 + fraction
    return -milliseconds if found["sign"] == "-" else milliseconds


def _not_a_duration(text: str) -> ValueError:
    return ValueError(f"{text!r} is not a duration like PT30M, P1D or P1DT2H30M")


_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_short_duration_ms(text: str) -> int:
    """A duration in the short format, a number with a unit: 90s, 10m, 1.5h, 7d; ValueError for any other text."""
    found = re.fullmatch(_SHORT, text, re.ASCII)
    milliseconds = float(found[1]) * _UNITS_MS[found[2]] if found is not None else inf
    if milliseconds == inf:
        raise ValueError(f"{text!r} is not a duration like 90s, 10m, 1h or 7d")
    return round(milliseconds)
