"""Templates, and the forms in which they show numbers, sizes and times.

Jinja escapes everything that a template inserts.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .brokers import Brokers
from .failures import NotAllowed
from .schema_registry import SchemaRegistry
from .values import visible

_NAVIGATION: Final = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/transactions", "Transactions"),
    ("/clients", "Clients"),
    ("/schemas", "Schemas"),
    ("/acls", "Access"),
)
# Screens that have no address of their own in the navigation, with the one that they belong to.
_BELONGS_TO: Final = {"/group": "/groups", "/create-topic": "/topics", "/users": "/acls", "/quotas": "/acls"}
_TABS: Final = (
    ("", "Messages"),
    ("/search", "Search"),
    ("/live", "Live"),
    ("/send", "Send"),
    ("/partitions", "Partitions"),
    ("/settings", "Settings"),
)
# Screens that a console for reading does not have.
_CHANGING: Final = frozenset({"/send"})
MAX_FORM_BYTES: Final = 16 << 20


def brokers_of(request: Request) -> Brokers:
    found = request.app.state.brokers
    assert isinstance(found, Brokers)
    return found


def registry_of(request: Request) -> SchemaRegistry | None:
    """The registry of ``--registry``."""
    found = request.app.state.registry
    assert found is None or isinstance(found, SchemaRegistry)
    return found


def wants_json(request: Request) -> bool:
    """Whether a program, not a page, is the reader of the response."""
    return "application/json" in request.headers.get("accept", "") or request.url.path.startswith("/api/")


def refuse_if_read_only(request: Request) -> None:
    """For pages that only have a form. Raises NotAllowed if the console was started with ``--read-only``."""
    if request.app.state.read_only:
        raise NotAllowed("the console was started with --read-only, so it has no form for this")


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """A page."""
    return HTMLResponse(html(request, template, **values), status_code=status)


def html(request: Request, template: str, **values: Any) -> str:
    """A template as text."""
    common = {
        "path": request.url.path,
        "screen": _screen(request.url.path),
        "bootstrap_server": brokers_of(request).bootstrap_server,
        "read_only": request.app.state.read_only,
        "nav": _NAVIGATION + (() if request.app.state.control is None else (("/faults", "Faults"),)),
        "has_control": request.app.state.control is not None,
        "tabs": [tab for tab in _TABS if tab[0] not in _CHANGING or not request.app.state.read_only],
    }
    return _TEMPLATES.get_template(template).render({**common, **values})


def _screen(path: str) -> str:
    """The address in the navigation to which a page belongs."""
    first = "/" + path.split("/")[1]
    return _BELONGS_TO.get(first, first)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a submitted form; of a repeated one the last. Raises HTTPException if it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, f"The form is larger than {size(MAX_FORM_BYTES)}.")
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000))
    except ValueError:
        raise HTTPException(400, "The form has more than 1000 fields.") from None


def number(value: int | None) -> str:
    """``1 234 567``; a dash for None."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def size(count: int | None) -> str:
    """``1.5 MB``; a dash for None."""
    if count is None:
        return "–"
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.5:
            return f"{value:.3g} {unit}"
    return f"{value / 1000:,.3g} TB"


def rate(value: float | None) -> str:
    """``1 234``, ``12``, ``0.25``; a dash for None."""
    if value is None:
        return "–"
    return number(round(value)) if value >= 100 or value == 0 else f"{value:.2g}"


def moment(timestamp_ms: int) -> str:
    """A time of the zone of the console."""
    return _in_zone(timestamp_ms, "%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}" if timestamp_ms >= 0 else "–"


def _in_zone(timestamp_ms: int, form: str) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms // 1000).astimezone().strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms // 1000} s after 1970, "


def iso(timestamp_ms: int) -> str:
    """A time in UTC, in ISO 8601; the milliseconds if it has no year of four digits."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def duration(ms: int | None) -> str:
    """``35 s``, ``12 min``, ``3.5 h``, ``8 days``; a dash for None."""
    if ms is None:
        return "–"
    seconds = max(0, ms) / 1000
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h" if seconds < 172_800 else f"{seconds / 86_400:.3g} days"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "number": number,
    "size": size,
    "rate": rate,
    "moment": moment,
    "iso": iso,
    "duration": duration,
    "visible": visible,
    "segment": lambda text: quote(str(text), safe=""),
}
