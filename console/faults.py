"""The screen of faults: what `moldau.testing` does with a broker, with a mouse.

It needs the control address of the server (``moldau serve --control``), and talks to nothing else, so it also works
while a fault keeps the console from the cluster.
"""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ..cli.failure import Failure
from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from .failures import BadRequest
from .messages import natural
from .rendering import form_of, render

_TIMEOUT_S: Final = 40.0
# Those that the fields of the form describe completely.
_KINDS: Final = {
    "error": "respond with an error",
    "error after": "do it, and respond with an error",
    "delay": "respond later",
    "disconnect": "close the connection",
    "disconnect after": "do it, and close the connection",
    "disconnect middle": "do it, and break the response off",
    "blackhole": "never respond",
    "throttle": "throttle",
    "corrupt batch": "corrupt the records of the response",
    "stale metadata": "respond with old metadata",
}
_WITH_ERROR: Final = frozenset({"error", "error after"})
_WITH_TIME: Final = frozenset({"delay", "throttle"})


@dataclass
class Added:
    """A fault that this console has added."""

    number: int
    text: str
    triggered: int | None = None


class Control:
    """The control of a server."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._lock = threading.Lock()
        self._ahead_ms = 0
        self._faults: dict[int, str] = {}

    @property
    def ahead_ms(self) -> int:
        """How far this console has moved the clock of the server."""
        return self._ahead_ms

    def advance(self, ms: int) -> None:
        """Move the clock of the server forward. Raises Failure."""
        with self._lock:
            ahead_ms = self._ahead_ms + ms
            self.command("set_clock", ahead_ms=ahead_ms)
            self._ahead_ms = ahead_ms

    def add_fault(self, text: str, fault: dict[str, Any]) -> None:
        number = int(self._ask("POST", "/faults", fault)["fault"])
        with self._lock:
            self._faults[number] = text

    def remove_fault(self, number: int) -> None:
        self._ask("DELETE", f"/faults/{number}")
        with self._lock:
            self._faults.pop(number, None)

    def clear_faults(self) -> None:
        """Remove all faults, also those of others."""
        self._ask("DELETE", "/faults")
        with self._lock:
            self._faults.clear()

    def faults(self) -> list[Added]:
        """The faults of this console, with how many requests they have affected."""
        with self._lock:
            known = dict(self._faults)
        return [
            Added(number, text, int(self._ask("GET", f"/faults/{number}")["triggered"]))
            for number, text in sorted(known.items())
        ]

    def command(self, name: str, **arguments: Any) -> None:
        self._ask("POST", f"/commands/{name}", arguments)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The response of the control. Raises Failure."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            address = f"{self._host}:{self._port}"
            raise Failure(f"the control {address} does not respond: {error}; is `serve --control` running?") from None
        finally:
            connection.close()
        if response.status >= 300:
            raise Failure(str(answer.get("error", response.reason)))
        return answer


def control_of(request: Request) -> Control:
    found: Control | None = request.app.state.control
    if found is None:
        raise HTTPException(404, "The console was started without --control, so it has no faults.")
    return found


def _page(request: Request) -> Response:
    control = control_of(request)
    return render(
        request,
        "faults.html",
        title="Faults",
        faults=control.faults(),
        ahead_ms=control.ahead_ms,
        kinds=_KINDS,
        apis=sorted(each.message_name for each in ApiKey),
        errors=[each.name for each in ErrorCode if each > 0],
        done=request.query_params.get("done"),
    )


async def _post(request: Request) -> Response:
    fields = await form_of(request)
    return await run_in_threadpool(_act, request, fields)


def _act(request: Request, fields: dict[str, str]) -> Response:
    control = control_of(request)
    action = fields.get("action", "")
    match action:
        case "advance":
            control.advance(1000 * natural(fields.get("seconds", ""), "number of seconds"))
        case "retention":
            control.command("delete_old_segments")
        case "compact":
            control.command("compact", topic=fields.get("topic", ""))
        case "expire":
            group = fields.get("group", "")
            control.command("expire_member", group=group, member=fields.get("member", ""))
            return RedirectResponse(f"/group?{urlencode({'id': group})}", status_code=303)
        case "add":
            control.add_fault(*_fault(fields))
        case "remove":
            control.remove_fault(natural(fields.get("fault", ""), "fault"))
        case "clear":
            control.clear_faults()
        case _:
            raise BadRequest(f"{action!r} is no action of this page")
    return RedirectResponse(f"/faults?{urlencode({'done': action})}", status_code=303)


def _fault(fields: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """A fault in words, and as the control reads it. Raises Failure."""
    kind = fields.get("kind", "")
    if kind not in _KINDS:
        raise BadRequest(f"{kind!r} is no kind of a fault")
    fault: dict[str, Any] = {"kind": kind}
    words = [_KINDS[kind]]
    if kind in _WITH_ERROR:
        fault["error"] = fields.get("error", "")
        words.append(fault["error"])
    if kind in _WITH_TIME:
        fault["milliseconds"] = natural(fields.get("milliseconds", ""), "number of milliseconds")
        words.append(f"({fault['milliseconds']} ms)")
    fault["api"] = fields.get("api") or None
    words.append(f"to {fault['api'] or 'all'} requests")
    for name, phrase in (("topic", "for the topic"), ("client_id", "of the client")):
        if fields.get(name):
            fault[name] = fields[name]
            words += [phrase, fields[name]]
    if fields.get("times"):
        fault["times"] = natural(fields["times"], "number of times")
        words.append(f"{fault['times']} times")
    return " ".join(words), {name: value for name, value in fault.items() if value is not None}


ROUTES: Final = [
    Route("/faults", _page, methods=["GET"]),
    Route("/faults", _post, methods=["POST"]),
]
