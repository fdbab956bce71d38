"""Metrics in the text format of Prometheus, read from the listener of a broker."""

from __future__ import annotations

import math
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 256 << 20
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*,?\s*')
_ESCAPED: Final = re.compile(r"\\(.)")


class MetricsError(Exception):
    """The listener does not respond, or not with metrics; the message says so."""


class Sample(NamedTuple):
    """A number of a time series."""

    name: str
    labels: dict[str, str]
    value: float


class MetricsListener:
    """The address of a listener: HOST:PORT, or a URL, whose path is /metrics if it has none."""

    def __init__(self, address: str) -> None:
        """Raises ValueError."""
        url = address if "://" in address else f"http://{address}"
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or (parts.port is None and "://" not in address):
            raise ValueError(f"{address!r} is not HOST:PORT or http://HOST:PORT/metrics")
        self.url = url if parts.path not in ("", "/") else f"{url.rstrip('/')}/metrics"

    def samples(self, prefixes: tuple[str, ...]) -> list[Sample]:
        """The samples whose names have one of the prefixes. Raises MetricsError."""
        try:
            with urllib.request.urlopen(self.url, timeout=_TIMEOUT_S) as response:
                text = response.read(_MAX_BYTES).decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            with error:
                raise MetricsError(f"{self.url} responds {error.code}") from None
        except (OSError, ValueError) as error:
            raise MetricsError(f"{self.url} cannot be reached: {getattr(error, 'reason', error)}") from None
        try:
            return list(parse(line for line in text.split("\n") if line.startswith(prefixes)))
        except ValueError as problem:
            raise MetricsError(f"{self.url} does not respond with metrics: {problem}") from None


def parse(lines: Iterable[str]) -> Iterator[Sample]:
    """The samples of lines; comments are skipped. Raises ValueError for a line that is not one."""
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            raise ValueError(f"{line[:100]!r} is not a sample")
        labels, position = {}, 0
        text = match[2] or ""
        while position < len(text):
            label = _LABEL.match(text, position)
            if label is None:
                raise ValueError(f"{line[:100]!r} has invalid labels")
            labels[label[1]] = _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], label[2])
            position = label.end()
        value = float(match[3])
        if not math.isnan(value):
            yield Sample(match[1], labels, value)
