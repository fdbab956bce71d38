"""The screens of the schemas of a registry: all subjects, and one with its versions, text, and what has changed."""

from __future__ import annotations

import difflib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .decoders import FormatError
from .paging import page_of
from .registry_client import NotFoundError, RegistryClient, UnreachableError
from .rendering import registry_of, render
from .schema_registry import KINDS

# Subjects of one page: their latest versions are requested for these only, some at the same time.
_PER_PAGE: Final = 50
_AT_ONCE: Final = 8
_SHOWN_CHARACTERS: Final = 200_000
# Comparing takes the square of the number of lines at worst.
_COMPARED_LINES: Final = 5000
_SUFFIXES: Final = ("-value", "-key")


class Line(NamedTuple):
    """A line of a comparison: ``+``, ``-``, a blank for a line of both, or ``@`` between distant lines."""

    sign: str
    text: str


def _schemas(request: Request) -> Response:
    registry = registry_of(request)
    query = request.query_params.get("q", "").strip()
    values: dict[str, Any] = {"rows": [], "total": 0, "page": 0, "pages": 0, "problem": None, "level": None}
    if registry is not None:
        try:
            matching = [each for each in registry.subjects() if query.lower() in each.lower()]
            page = page_of(request, matching, _PER_PAGE)
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                rows = list(threads.map(lambda subject: _latest(registry.client, subject), page.shown))
            values["rows"] = [row for row in rows if row is not None]
            values["total"] = len(matching)
            values["page"], values["pages"] = page.number, page.pages
            values["level"] = _level(registry.client, None)
        except (FormatError, UnreachableError) as problem:
            values["problem"] = str(problem)
    return render(
        request,
        "schemas.html",
        title="Schemas",
        query=query,
        registry=None if registry is None else registry.client.url,
        **values,
    )


def _latest(client: RegistryClient, subject: str) -> dict[str, Any] | None:
    """The latest version of a subject; None if the subject was deleted in the meantime."""
    try:
        fields = client.version(subject, "latest")
    except NotFoundError:
        return None
    return {
        "subject": subject,
        "version": fields["version"],
        "id": fields["id"],
        "kind": _kind(fields),
        "topic": _topic(subject),
    }


def _schema(request: Request) -> Response:
    registry = registry_of(request)
    if registry is None:
        raise HTTPException(404, "The console was started without --registry, so it has no schemas.")
    client = registry.client
    subject = request.query_params.get("subject", "")
    version, against = (request.query_params.get(name, "") for name in ("version", "against"))
    try:
        fields = client.version(subject, version or "latest")
        versions = [int(each) for each in client.get(f"/subjects/{quote(subject, safe='')}/versions")]
        older = [each for each in versions if each < fields["version"]]
        other = against or (str(older[-1]) if older else "")
        lines = compare(_text(client.version(subject, other)), _text(fields)) if other else None
        level = _level(client, subject)
        users = client.get(f"/subjects/{quote(subject, safe='')}/versions/{fields['version']}/referencedby")
    except NotFoundError:
        what = (
            f"no version {version or against} of the subject {subject!r}" if version or against else f"no {subject!r}"
        )
        raise HTTPException(404, f"The registry {client.url} has {what}.") from None
    except UnreachableError as problem:
        raise HTTPException(502, f"{problem}") from None
    text = _text(fields)
    return render(
        request,
        "schema.html",
        title=subject,
        subject=subject,
        topic=_topic(subject),
        version=fields["version"],
        versions=versions[::-1],
        against=other,
        id=fields["id"],
        kind=_kind(fields),
        level=level,
        references=fields.get("references") or [],
        users=users,
        text=text[:_SHOWN_CHARACTERS],
        is_cut=len(text) > _SHOWN_CHARACTERS,
        lines=lines,
        changes=None if lines is None else sum(1 for each in lines if each.sign in "+-"),
    )


def compare(old: str, new: str) -> list[Line] | None:
    """What has changed, with three lines around each change; None if the texts are too long to compare."""
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _COMPARED_LINES:
        return None
    found = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    return [Line("@" if each.startswith("@") else each[0], each[1:] if each[0] in "+- " else each) for each in found]


def _text(fields: Any) -> str:
    """The text of a schema; JSON is indented."""
    text = str(fields["schema"])
    if _kind(fields) == KINDS["PROTOBUF"]:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _kind(fields: Any) -> str:
    kind = str(fields.get("schemaType") or "AVRO")
    return KINDS.get(kind, kind)


def _level(client: RegistryClient, subject: str | None) -> str | None:
    """The level of compatibility of a subject (None: of all), with ``(of all subjects)`` where it has none."""
    try:
        if subject is None:
            return str(client.get("/config")["compatibilityLevel"])
        try:
            return str(client.get(f"/config/{quote(subject, safe='')}")["compatibilityLevel"])
        except NotFoundError:
            return f"{client.get('/config')['compatibilityLevel']} (of all subjects)"
    except NotFoundError:
        return None


def _topic(subject: str) -> str | None:
    """The topic of a subject that is named by the usual strategy."""
    for suffix in _SUFFIXES:
        if subject.endswith(suffix) and subject != suffix:
            return subject.removesuffix(suffix)
    return None


ROUTES: Final = [
    Route("/schemas", _schemas, methods=["GET"]),
    Route("/schemas/subject", _schema, methods=["GET"]),
]
