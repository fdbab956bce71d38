"""An endpoint of metrics, which is read in a thread: a JMX exporter can take seconds, and the rest need not wait."""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple

from .exposition import Scrape, ScrapeError, fetch, parse

# How old metrics may be before the user is told.
_STALE_S: Final = 30.0


class Address(NamedTuple):
    """The address of an endpoint."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Scrapes(NamedTuple):
    """The last two different scrapes."""

    before: Scrape | None
    now: Scrape


class Endpoint:
    """See the module docstring. One thread at a time reads; the attributes are those of the last complete reading."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.scrapes: Scrapes | None = None
        self._failure: str | None = None
        self._text = ""
        self._is_idle = threading.Event()
        self._is_idle.set()

    def read(self, patience_s: float) -> None:
        """Begin to read, unless that is in progress, and wait for this time at most."""
        if self._is_idle.is_set():
            self._is_idle.clear()
            # A daemon: the program ends without it.
            threading.Thread(target=self._read, name=f"metrics {self.address}", daemon=True).start()
        self._is_idle.wait(patience_s)

    def problem(self) -> str | None:
        """Why the metrics are missing or old; None if they are not."""
        if self._failure is not None:
            return f"no metrics from {self.address}: {self._failure}"
        if self.scrapes is None:
            return f"no metrics from {self.address} yet"
        age_s = time.monotonic() - self.scrapes.now.taken_s
        return f"the metrics from {self.address} are {age_s:.0f} s old" if age_s > _STALE_S else None

    def _read(self) -> None:
        try:
            text = fetch(self.address.host, self.address.port)
            if text != self._text:  # a large broker serves a text several times
                now = parse(text, time.monotonic())
                self._text = text
                self.scrapes = Scrapes(None if self.scrapes is None else self.scrapes.now, now)
            self._failure = None
        except ScrapeError as problem:
            self._failure = str(problem)
            self._text = ""
            self.scrapes = None
        finally:
            self._is_idle.set()
