"""HTTP control of a server in tests, for languages other than Python: `moldau serve --control HOST:PORT`.

It offers what `moldau.testing` offers: faults, the record of requests, and the commands of `steering`. `/openapi.json`
describes it. It is off by default, and it is for tests only: every program that reaches it controls the server. Web
pages do not reach it: a request must name an address or localhost as its host, have no other origin, and have JSON as
its content type.

The HTTP server is that of the standard library, with a thread for each connection; the commands run on the event loop
of the broker.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from .requests.faults import Kind
from .requests.request_json import with_decoded
from .steering import Steering, SteeringError

if TYPE_CHECKING:
    from .broker import Broker
    from .network.listeners import Network

logger = logging.getLogger(__name__)

_MAX_BODY_BYTES: Final = 1 << 20
_DEFAULT_TIMEOUT_MS: Final = 30_000
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_TIMEOUT_MS: Final = {"timeout_ms": {**_NUMBER, "default": _DEFAULT_TIMEOUT_MS}}
_COMMANDS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "wait_group_stable": (
        "Wait until a group is stable, with this number of members if it is given",
        {"group": _TEXT, "members": {"type": ["integer", "null"], "default": None}, **_TIMEOUT_MS},
    ),
    "wait_lag_zero": (
        "Wait until a group has committed all records of a topic",
        {"group": _TEXT, "topic": _TEXT, **_TIMEOUT_MS},
    ),
    "expire_member": ("Remove a member from its group", {"group": _TEXT, "member": _TEXT}),
    "expire_transaction": ("Abort a transaction", {"transactional_id": _TEXT, **_TIMEOUT_MS}),
    "roll": ("Start a new segment of a partition", {"topic": _TEXT, "partition": _NUMBER}),
    "delete_old_segments": ("Apply retention to all partitions", {}),
    "set_clock": (
        "Set how far the server's clock is ahead of the machine's",
        {"ahead_ms": {**_NUMBER, "description": "milliseconds; 0 is the machine's time"}},
    ),
    "compact": ("Compact all partitions of a topic", {"topic": _TEXT, **_TIMEOUT_MS}),
}
"""The commands of `steering` that are not resources here: what they do, and the schemas of their arguments."""


class ControlError(ValueError):
    """The address of the control is not usable; the message says why."""


class _BadRequestError(Exception):
    def __init__(self, status: HTTPStatus, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


class Control:
    """The HTTP server, from `start` to `close`."""

    def __init__(self, address: str) -> None:
        """Listen at `HOST:PORT`. Raises `ControlError`."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ControlError(f"--control {address} is not HOST:PORT, such as 127.0.0.1:8082")
        try:
            self._http = ThreadingHTTPServer((host.strip("[]"), int(port)), _Handler)
        except (OSError, OverflowError) as error:
            raise ControlError(f"--control {address}: {error}") from error
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, name="control", daemon=True)

    @property
    def address(self) -> str:
        """`HOST:PORT`, with the port that was chosen for port 0."""
        host, port = self._http.server_address[:2]
        return f"{host!s}:{port}"

    def start(self, broker: Broker, network: Network) -> None:
        """Serve. Raises `ControlError` at the limit of threads."""
        # The handler of a request finds these by its server.
        self._http.steering = Steering(broker, network)  # type: ignore[attr-defined]
        self._http.broker_loop = broker.loop  # type: ignore[attr-defined]
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ControlError(f"the control of tests needs a thread: {error}") from error

    def close(self) -> None:
        """Stop. Requests that are being served are not answered."""
        if self._thread.is_alive():
            self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: Any

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The base class calls it for a method that has no `do_`, and for a request that it cannot parse."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._serve(self.command)
        else:
            self.request_version = self.protocol_version  # a response to HTTP/0.9 would have no headers
            self._respond(HTTPStatus(code), {"error": message or HTTPStatus(code).phrase}, {"Connection": "close"})

    def _serve(self, method: str) -> None:
        status, headers = HTTPStatus.OK, {}
        try:
            self._check_host()
            self._check_origin()
            answer = self._answer(method)
            if method == "POST" and "fault" in answer:
                status = HTTPStatus.CREATED
        except _BadRequestError as error:
            # Its body may not have been read.
            status, answer, headers = error.status, {"error": str(error)}, {"Connection": "close", **error.headers}
        except SteeringError as error:
            status, answer = HTTPStatus.CONFLICT, {"error": str(error)}
        except Exception as error:
            logger.exception("A request to the control failed with an unexpected error")
            status, answer = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": repr(error)}
        self._respond(status, answer, headers)

    def _respond(self, status: HTTPStatus, answer: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self, method: str) -> dict[str, Any]:
        url = urlsplit(self.path)
        methods = _methods(url.path)
        if methods and method not in methods:
            raise _BadRequestError(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{url.path} has no method {method}, only {' and '.join(methods)}; see /openapi.json",
                {"Allow": ", ".join(methods)},
            )
        match method, *url.path.strip("/").split("/"):
            case "GET", "openapi.json":
                return OPENAPI
            case "POST", "faults":
                return {"fault": self._do("add_fault", fault=_named(self._body()))}
            case "GET", "faults", number:
                return {"triggered": self._do("count_fault", fault=_integer("fault", number))}
            case "DELETE", "faults":
                return self._done("remove_faults", fault=None)
            case "DELETE", "faults", number:
                return self._done("remove_faults", fault=_integer("fault", number))
            case "GET", "requests":
                query = {name: values[-1] for name, values in parse_qs(url.query).items()}
                since = _integer("since", query["since"]) if "since" in query else None
                timeout_ms = _integer("timeout_ms", query.get("timeout_ms", "0"))
                found = self._do("requests", since=since, wait=timeout_ms > 0, timeout_ms=timeout_ms)
                return {"next": found["next"], "requests": [with_decoded(each) for each in found["requests"]]}
            case "POST", "commands", name if name in _COMMANDS:
                return self._done(name, **_arguments(name, self._body()))
        raise _BadRequestError(HTTPStatus.NOT_FOUND, f"there is no {url.path}; see /openapi.json")

    def _done(self, name: str, **arguments: Any) -> dict[str, Any]:
        self._do(name, **arguments)
        return {}

    def _do(self, name: str, **arguments: Any) -> Any:
        command = {**arguments, "do": name}
        return asyncio.run_coroutine_threadsafe(self.server.steering.perform(command), self.server.broker_loop).result()

    def _body(self) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise _BadRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json")
        size = _integer("Content-Length", self.headers.get("Content-Length", "0"))
        if size > _MAX_BODY_BYTES:
            raise _BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the limit is {_MAX_BODY_BYTES} bytes")
        try:
            body = json.loads(self.rfile.read(size) or b"{}")
        except ValueError as error:
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, "the body must be an object")
        return body

    def _check_host(self) -> None:
        """Reject the host name of a web page whose name server has moved it to this address (DNS rebinding)."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        if host == "localhost":
            return
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise _BadRequestError(HTTPStatus.FORBIDDEN, f"the host is {host!r}; use an address or localhost") from None

    def _check_origin(self) -> None:
        """Reject what a page of another server sends. A browser always names the page's origin then."""
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != self.headers.get("Host"):
            raise _BadRequestError(HTTPStatus.FORBIDDEN, f"the request comes from a web page of {origin!r}")

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


def _methods(path: str) -> tuple[str, ...]:
    """The methods of a path. Empty: the path does not exist."""
    match path.strip("/").split("/"):
        case ["openapi.json"] | ["requests"]:
            return ("GET",)
        case ["faults"]:
            return ("POST", "DELETE")
        case ["faults", _]:
            return ("GET", "DELETE")
        case ["commands", name] if name in _COMMANDS:
            return ("POST",)
    return ()


def _integer(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise _BadRequestError(HTTPStatus.BAD_REQUEST, f"{name} must be a number, not {text!r}")
    return int(text)


_TYPES: Final[Mapping[str, type]] = {"string": str, "integer": int, "null": type(None)}


def _arguments(command: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a command, of which those that are missing have their defaults."""
    schemas = _COMMANDS[command][1]
    found = {name: schema["default"] for name, schema in schemas.items() if "default" in schema} | dict(body)
    if found.keys() != schemas.keys():
        raise _BadRequestError(
            HTTPStatus.BAD_REQUEST, f"the arguments of {command} are {', '.join(schemas) or 'none'}, not {[*body]}"
        )
    for name, value in found.items():
        expected = schemas[name]["type"]
        names = expected if isinstance(expected, list) else [expected]
        if not isinstance(value, tuple(_TYPES[each] for each in names)) or isinstance(value, bool):
            raise _BadRequestError(
                HTTPStatus.BAD_REQUEST, f"the argument {name} of {command} is a value of type {names[0]}, not {value!r}"
            )
    return found


def _named(fault: Mapping[str, Any]) -> dict[str, Any]:
    """A fault with numbers for the names of APIs and errors."""
    numbered = dict(fault)
    if isinstance(api := fault.get("api"), str):
        found = next((each for each in ApiKey if api in (each.name, each.message_name)), None)
        if found is None:
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, f"there is no API {api!r}; names are like Produce")
        numbered["api"] = int(found)
    if isinstance(error := fault.get("error"), str):
        if error not in ErrorCode.__members__:
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, f"there is no error {error!r}")
        numbered["error"] = int(ErrorCode[error])
    return numbered


def _operation(summary: str, body: dict[str, Any] | None = None, parameters: tuple[str, ...] = ()) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "default": {"description": "JSON; on failure with an error", "content": {"application/json": {}}}
        },
        "parameters": [
            {
                "name": name,
                "in": "path" if name == "fault" else "query",
                "required": name == "fault",
                "schema": {"type": "integer"},
            }
            for name in parameters
        ],
    }
    if body is not None:
        described["requestBody"] = {"content": {"application/json": {"schema": body}}}
    return described


_FAULT: Final = {
    "type": "object",
    "required": ["kind"],
    "properties": {
        "kind": {"type": "string", "enum": [kind.value for kind in Kind]},
        "api": {**_TEXT, "description": "such as Produce; all APIs if it is missing"},
        "error": {**_TEXT, "description": "for the kinds with an error, such as NOT_LEADER_OR_FOLLOWER"},
        "milliseconds": {**_NUMBER, "description": "for delay and throttle"},
        "highest": {
            "type": ["object", "string"],
            "description": "for cap versions: the key of an API to its highest version, or a release such as 2.8",
        },
        "host": {**_TEXT, "description": "for advertise"},
        "port": {**_NUMBER, "description": "for advertise"},
        "versions": {"type": "array", "items": _NUMBER, "description": "lowest and highest"},
        "client_id": _TEXT,
        "topic": _TEXT,
        "partition": _NUMBER,
        "group": {**_TEXT, "description": "a group or transactional ID; required for move coordinator"},
        "skip": {**_NUMBER, "description": "how many matching requests are not affected at first"},
        "times": {**_NUMBER, "description": "how many are affected then; all if it is missing"},
        "probability": {"type": "number", "minimum": 0, "maximum": 1},
        "seed": _NUMBER,
    },
}
OPENAPI: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {"title": "Control of a Moldau server in tests", "version": "1"},
    "paths": {
        "/faults": {
            "post": _operation("Add a fault; the response has its number", _FAULT),
            "delete": _operation("Remove all faults"),
        },
        "/faults/{fault}": {
            "get": _operation("How many requests the fault has affected", parameters=("fault",)),
            "delete": _operation("Remove the fault", parameters=("fault",)),
        },
        "/requests": {
            "get": _operation(
                "The recorded requests from the number `since` on, and the next number. Recording begins with the "
                "first call. With timeout_ms, wait for a request. `request` is decoded; `data` is the frame in base64, "
                "of which at most 16 kB are recorded.",
                parameters=("since", "timeout_ms"),
            )
        },
        **{
            f"/commands/{name}": {
                "post": _operation(
                    f"{summary}; the response is sent when it is done",
                    {
                        "type": "object",
                        "required": [each for each, schema in schemas.items() if "default" not in schema],
                        "properties": schemas,
                        "additionalProperties": False,
                    },
                )
            }
            for name, (summary, schemas) in _COMMANDS.items()
        },
    },
}
