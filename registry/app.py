"""The REST API as an ASGI application: routes, parameters, and errors as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..cli.connection import PeerError
from ..cli.failure import Failure
from .errors import RegistryError, invalid_schema, schema_not_found
from .guard import Guard
from .records import AVRO, Schema, parse_references
from .registry import Registry
from .schemas import KINDS

logger = logging.getLogger(__name__)
T = TypeVar("T")

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAX_BODY_BYTES: Final = 10 << 20


class Call(NamedTuple):
    """A request: parameters of its path and query, and its body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes

    @property
    def subject(self) -> str:
        return self.path["subject"]

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    @property
    def form(self) -> str:
        return self.query.get("format", "")

    @property
    def id(self) -> int:
        text = self.path["id"]
        if not (text.isascii() and text.isdecimal()) or len(text) > 10:
            raise RegistryError(404, f"{text!r} is not the id of a schema; an id is a number")
        if int(text) > 2**31 - 1:
            raise schema_not_found(int(text))
        return int(text)

    def fields(self) -> dict[str, Any]:
        """The body as a JSON object. Raises RegistryError."""
        try:
            fields = json.loads(self.body or b"{}")
        except (ValueError, RecursionError) as problem:
            raise RegistryError(400, f"The body is not JSON: {problem}") from None
        if not isinstance(fields, dict):
            raise RegistryError(400, "The body is not a JSON object")
        return fields

    def text(self, name: str) -> str:
        """A member of the body that has to be a string. Raises RegistryError."""
        value = self.fields().get(name)
        if not isinstance(value, str):
            raise RegistryError(422, f"The body needs the member '{name}', which is a string")
        return value

    def schema(self) -> Schema:
        """The schema in the body. Raises RegistryError."""
        fields = self.fields()
        text, kind = fields.get("schema"), fields.get("schemaType") or AVRO
        if not isinstance(text, str) or not text.strip():
            raise invalid_schema("the body needs the member 'schema', which is a string")
        if not isinstance(kind, str):
            raise invalid_schema("schemaType is not a string")
        if fields.get("metadata") or fields.get("ruleSet"):
            raise invalid_schema("this registry has no metadata and no rules; send the schema without them")
        try:
            return Schema(kind, text, parse_references(fields.get("references")))
        except ValueError as problem:
            raise invalid_schema(str(problem)) from None

    def number(self, name: str) -> int | None:
        """A positive number in the body; None if it is missing, or -1, which means the same. Raises RegistryError."""
        value = self.fields().get(name)
        if value is None or value == -1:
            return None
        if type(value) is not int or not 1 <= value < 2**31:
            raise RegistryError(42202 if name == "version" else 422, f"'{name}' is not a positive number")
        return value

    def page(self, found: list[T]) -> list[T]:
        """The part of a list that ``offset`` and ``limit`` select."""
        try:
            offset, limit = int(self.query.get("offset", "0")), int(self.query.get("limit", "-1"))
        except ValueError:
            raise RegistryError(400, "offset and limit are numbers") from None
        return found[max(0, offset) :][: None if limit < 0 else limit]


Handler = Callable[[Registry, Call], Any]


def create_app(registry: Registry, *, token: str | None = None) -> ASGIApp:
    """The application, with the token that requests need."""
    routes = [Route(path, _endpoint(registry, handler), methods=[method]) for method, path, handler in _ROUTES]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error, Exception: _internal_error})
    return Guard(app, token=token, refuse=_error)


def _endpoint(registry: Registry, handler: Handler) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > _MAX_BODY_BYTES:
                    return _error(413, f"The request is larger than {_MAX_BODY_BYTES} bytes")
        except ClientDisconnect:
            return _error(400, "The request ended early")
        path = {name: unquote(value) for name, value in request.path_params.items()}
        return await run_in_threadpool(_respond, registry, handler, Call(path, request.query_params, bytes(body)))

    return endpoint


def _respond(registry: Registry, handler: Handler, call: Call) -> Response:
    try:
        result = handler(registry, call)
    except RegistryError as problem:
        return _error(problem.code, problem.message)
    except Failure as failure:
        return _error(50001, f"Error in the backend data store: {failure.message}")
    except PeerError as problem:
        return _error(50001, f"Error in the backend data store: {problem}")
    if isinstance(result, PlainTextResponse):
        return result
    return Response(json.dumps(result, separators=(",", ":")), media_type=MEDIA_TYPE)


def _error(code: int, message: str) -> Response:
    content = json.dumps({"error_code": code, "message": message})
    return Response(content, status_code=int(str(code)[:3]), media_type=MEDIA_TYPE)


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"HTTP {error.status_code} {error.detail}")


async def _internal_error(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _error(500, "Internal error; the log of `moldau registry` has the details.")


def _register(registry: Registry, call: Call) -> Any:
    return registry.register(
        call.subject,
        call.schema(),
        normalize=call.flag("normalize"),
        schema_id=call.number("id"),
        version=call.number("version"),
    )


def _look_up(registry: Registry, call: Call) -> Any:
    return registry.look_up(
        call.subject, call.schema(), normalize=call.flag("normalize"), with_deleted=call.flag("deleted")
    )


def _compatible(registry: Registry, call: Call) -> Any:
    problems = registry.test_compatibility(
        call.subject, call.schema(), call.path.get("version"), normalize=call.flag("normalize")
    )
    return {"is_compatible": not problems} | ({"messages": problems} if call.flag("verbose") else {})


def _subjects(registry: Registry, call: Call) -> Any:
    prefix = call.query.get("subjectPrefix", "").removeprefix(":*:")
    found = registry.subjects(with_deleted=call.flag("deleted"))
    return call.page([each for each in found if each.startswith(prefix)])


def _schemas(registry: Registry, call: Call) -> Any:
    prefix = call.query.get("subjectPrefix", "").removeprefix(":*:")
    found = registry.all_versions(with_deleted=call.flag("deleted"), latest_only=call.flag("latestOnly"))
    return [
        registry.shown_version(each) for each in call.page([each for each in found if each.subject.startswith(prefix)])
    ]


def _subjects_of_id(registry: Registry, call: Call) -> Any:
    found = registry.versions_with_id(call.id, with_deleted=call.flag("deleted"))
    return sorted({each.subject for each in found})


def _versions_of_id(registry: Registry, call: Call) -> Any:
    found = registry.versions_with_id(call.id, with_deleted=call.flag("deleted"))
    return [{"subject": each.subject, "version": each.version} for each in found]


def _version(registry: Registry, call: Call) -> dict[str, Any]:
    return registry.version(call.subject, call.path["version"], with_deleted=call.flag("deleted"), form=call.form)


def _text(shown: Mapping[str, Any]) -> Response:
    return PlainTextResponse(shown["schema"], media_type=MEDIA_TYPE)


def _get_config(registry: Registry, call: Call) -> Any:
    level = registry.compatibility(call.path.get("subject"), default_to_global=call.flag("defaultToGlobal"))
    return {"compatibilityLevel": level}


def _put_config(registry: Registry, call: Call) -> Any:
    unknown = sorted(name for name, value in call.fields().items() if name != "compatibility" and value is not None)
    if unknown:
        raise RegistryError(422, f"The registry has no setting {', '.join(unknown)}; only 'compatibility' can be set")
    level = call.text("compatibility").upper()
    registry.set_compatibility(call.path.get("subject"), level)
    return {"compatibility": level}


def _put_mode(registry: Registry, call: Call) -> Any:
    mode = call.text("mode").upper()
    registry.set_mode(call.path.get("subject"), mode, force=call.flag("force"))
    return {"mode": mode}


def _get_mode(registry: Registry, call: Call) -> Any:
    return {"mode": registry.mode(call.path.get("subject"), default_to_global=call.flag("defaultToGlobal"))}


def _server_version(_registry: Registry, _call: Call) -> Any:
    from .. import __version__

    return {"version": f"moldau {__version__}", "commitId": ""}


def _schema(registry: Registry, call: Call) -> Any:
    return registry.schema(call.id, call.form)


def _schema_text(registry: Registry, call: Call) -> Any:
    return _text(registry.schema(call.id, call.form))


def _version_text(registry: Registry, call: Call) -> Any:
    return _text(_version(registry, call))


def _versions(registry: Registry, call: Call) -> Any:
    return call.page(registry.versions(call.subject, with_deleted=call.flag("deleted")))


def _referenced_by(registry: Registry, call: Call) -> Any:
    return registry.referenced_by(call.subject, call.path["version"])


def _delete_subject(registry: Registry, call: Call) -> Any:
    return registry.delete_subject(call.subject, permanent=call.flag("permanent"))


def _delete_version(registry: Registry, call: Call) -> Any:
    return registry.delete_version(call.subject, call.path["version"], permanent=call.flag("permanent"))


def _delete_config(registry: Registry, call: Call) -> Any:
    return {"compatibilityLevel": registry.delete_compatibility(call.path.get("subject"))}


def _delete_mode(registry: Registry, call: Call) -> Any:
    return {"mode": registry.delete_mode(call.path.get("subject"))}


_SUBJECT: Final = "/subjects/{subject}"
_VERSION: Final = "/subjects/{subject}/versions/{version}"
_ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/", lambda *_: {}),
    ("GET", "/schemas", _schemas),
    ("GET", "/schemas/types", lambda *_: list(KINDS)),
    ("GET", "/schemas/ids/{id}", _schema),
    ("GET", "/schemas/ids/{id}/schema", _schema_text),
    ("GET", "/schemas/ids/{id}/subjects", _subjects_of_id),
    ("GET", "/schemas/ids/{id}/versions", _versions_of_id),
    ("GET", "/contexts", lambda *_: ["."]),
    ("GET", "/subjects", _subjects),
    ("POST", _SUBJECT, _look_up),
    ("DELETE", _SUBJECT, _delete_subject),
    ("GET", f"{_SUBJECT}/versions", _versions),
    ("POST", f"{_SUBJECT}/versions", _register),
    ("GET", _VERSION, _version),
    ("DELETE", _VERSION, _delete_version),
    ("GET", f"{_VERSION}/schema", _version_text),
    ("GET", f"{_VERSION}/referencedby", _referenced_by),
    ("POST", "/compatibility/subjects/{subject}/versions", _compatible),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", _compatible),
    ("GET", "/config", _get_config),
    ("PUT", "/config", _put_config),
    ("DELETE", "/config", _delete_config),
    ("GET", "/config/{subject}", _get_config),
    ("PUT", "/config/{subject}", _put_config),
    ("DELETE", "/config/{subject}", _delete_config),
    ("GET", "/mode", _get_mode),
    ("PUT", "/mode", _put_mode),
    ("DELETE", "/mode", _delete_mode),
    ("GET", "/mode/{subject}", _get_mode),
    ("PUT", "/mode/{subject}", _put_mode),
    ("DELETE", "/mode/{subject}", _delete_mode),
    ("GET", "/v1/metadata/version", _server_version),
)
"""Method, path and handler of each route."""
