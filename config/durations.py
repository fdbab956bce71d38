"""Durations, as Kafka's settings and tools write them and as people type them.

The first are ISO 8601 in days, hours, minutes and seconds, ``P1DT2H30M``; the others a number and a unit, ``90s``.
"""

import re
from typing import Final

_NUMBER: Final = r"[-+]?\d+"
_DURATION: Final = re.compile(
    rf"(?P<sign>[-+]?)P(?:(?P<days>{_NUMBER})D)?"
    rf"(?:T(?=[-+\d])(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?"
    rf"(?:(?P<seconds>{_NUMBER})(?:[.,](?P<fraction>\d{{0,9}}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_duration_ms(text: str) -> int:
    """A duration in milliseconds, what is less cut off; ValueError for anything else. Every part may have a sign."""
    found = _DURATION.fullmatch(text)
    if found is None or len(text.lstrip("+-")) == 1:
        raise ValueError(f"{text!r} is not a duration like PT30M, P1D or P1DT2H30M")
    days, hours, minutes = (int(found[unit] or 0) for unit in ("days", "hours", "minutes"))
    fraction = int((found["fraction"] or "").ljust(9, "0")[:3])
    if (found["seconds"] or "").startswith("-"):
        fraction = -fraction
    milliseconds = ((days * 24 + hours) * 60 + minutes) * 60_000 + int(found["seconds"] or 0) * 1000 + fraction
    return -milliseconds if found["sign"] == "-" else milliseconds


_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)


def parse_short_duration_ms(text: str) -> int:
    """A duration as people type it, one number with its unit: 90s, 10m, 1.5h, 7d; ValueError for anything else."""
    found = _SHORT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration like 90s, 10m, 1h or 7d")
    return round(float(found[1]) * _UNITS_MS[found[2]])
