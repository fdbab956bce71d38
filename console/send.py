"""The screen that sends records: by a form, as JSON lines, or a copy of an existing record to edit."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ..cli.failure import Failure
from ..cli.produce import JsonLines, LineError
from .decoders import FormatError
from .fetching import Topic, load_topic
from .messages import natural, partitions_of
from .producing import Outgoing, Sent, send
from .record_pages import parse_offsets, single
from .rendering import brokers_of, form_of, now_ms, refuse_if_read_only, registry_of, render
from .schema_registry import SchemaRegistry

FORMS: Final = ("text", "JSON", "hex", "null")
"""How a key or a value is written in the form; with a registry, also with one of its schemas."""
WITH_SCHEMA: Final = "schema"
_MAX_LINES: Final = 10_000
_MAX_SUBJECTS: Final = 500
# Larger values are not put into a form.
_MAX_EDITED_BYTES: Final = 1 << 20


def _page(request: Request) -> Response:
    refuse_if_read_only(request)
    name = request.path_params["name"]
    sent = request.query_params.get("sent", "")
    with brokers_of(request).cluster() as cluster:
        topic = load_topic(cluster, name)
        fields = _empty(name)
        copied = parse_offsets(request.query_params.get("from", ""))
        for partition, offset in copied.items():
            partitions_of(topic, partition)
            row = single(cluster, topic, partition, offset)
            if row is None or row.problem is not None:
                raise Failure(f"{name}-{partition} has no record at offset {offset} that can be copied")
            record = row.record
            fields = {**fields, **_fields_of(record.key, record.value, record.headers, registry_of(request))}
            fields["partition"] = str(partition) if request.query_params.get("keep") == "1" else ""
    places = [Sent(partition, offset) for partition, offset in parse_offsets(sent).items()]
    return _render(request, topic, fields, sent=places, count=request.query_params.get("count", ""))


def _render(request: Request, topic: Topic, fields: dict[str, str], *, status: int = 200, **values: Any) -> Response:
    common: dict[str, Any] = {"problem": None, "sent": [], "count": ""}
    registry = registry_of(request)
    subjects, registry_problem = _subjects(registry)
    return render(
        request,
        "send.html",
        status=status,
        title=f"Send to {topic.name}",
        topic=topic,
        fields=fields,
        forms=FORMS if registry is None else (*FORMS, WITH_SCHEMA),
        subjects=subjects,
        registry_problem=registry_problem,
        **{**common, **values},
    )


def _subjects(registry: SchemaRegistry | None) -> tuple[list[str], str | None]:
    """The first subjects of the registry, to choose from, and why there are none."""
    if registry is None:
        return [], None
    try:
        return registry.subjects()[:_MAX_SUBJECTS], None
    except FormatError as problem:
        return [], str(problem)


def _empty(topic: str) -> dict[str, str]:
    return {
        "key": "",
        "key_form": "null",
        "value": "",
        "value_form": "text",
        "headers": "",
        "partition": "",
        "lines": "",
        "mode": "form",
        **{f"{part}_subject": f"{topic}-{part}" for part in ("key", "value")},
        **{f"{part}_{name}": "" for part in ("key", "value") for name in ("version", "message")},
    }


def _fields_of(key: bytes | None, value: bytes | None, headers: Any, registry: SchemaRegistry | None) -> dict[str, str]:
    """The form of a copy. Raises Failure if the record does not fit into a form."""
    if len(value or b"") > _MAX_EDITED_BYTES:
        raise Failure("the record is too large for a form; use `moldau consume --json` and `moldau produce --json`")
    lines = "\n".join(_header_line(name, content) for name, content in headers)
    return {**_part("key", key, registry), **_part("value", value, registry), "headers": lines}


def _part(name: str, data: bytes | None, registry: SchemaRegistry | None) -> dict[str, str]:
    """The fields of a key or a value. With a schema if that gives the same bytes again: a copy never changes them."""
    editable = None if registry is None or data is None else registry.editable(bytes(data))
    if editable is not None:
        text, subject, version = editable
        return {
            name: text,
            f"{name}_form": WITH_SCHEMA,
            f"{name}_subject": subject,
            f"{name}_version": str(version),
        }
    form, text = _written(data)
    return {name: text, f"{name}_form": form}


def _written(data: bytes | None) -> tuple[str, str]:
    """The form of bytes, and how they are written in it, so that they can be read again without a change."""
    if data is None:
        return "null", ""
    try:
        text = bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return "hex", bytes(data).hex(" ")
    # A text field changes line breaks, and HTML has no other control characters.
    is_plain = all(character >= " " or character in "\t\n" for character in text) and not text.startswith("\n")
    return ("text", text) if is_plain else ("hex", bytes(data).hex(" "))


def _header_line(name: str, value: bytes | None) -> str:
    """A header as a line of the form: ``name: text``, or as JSON where that would be read differently."""
    form, text = _written(value)
    is_plain = name == name.strip() and name.isprintable() and ":" not in name and not name.startswith("{") and name
    if form == "text" and is_plain and text == text.strip() and "\n" not in text:
        return f"{name}: {text}"
    return json.dumps({"name": name, "hex": None if value is None else bytes(value).hex()})


async def _post(request: Request) -> Response:
    fields = {**_empty(request.path_params["name"]), **await form_of(request)}
    return await run_in_threadpool(_send, request, fields)


def _send(request: Request, fields: dict[str, str]) -> Response:
    name = request.path_params["name"]
    with brokers_of(request).cluster() as cluster:
        topic = load_topic(cluster, name)
        try:
            records = _lines(fields) if fields["mode"] == "lines" else [_record(fields, registry_of(request))]
            places = send(cluster, topic, records, now_ms=now_ms())
        except Failure as failure:
            return _render(request, topic, fields, status=422, problem=failure.message)
    last = places[-1]
    query = {"sent": f"{last.partition}:{last.offset}"}
    if fields["mode"] == "lines":
        query["count"] = str(len(places))
    else:
        query["from"] = query["sent"]
        query |= {"keep": "1"} if fields["partition"] else {}
    return RedirectResponse(f"{request.url.path}?{urlencode(query)}", status_code=303)


def _record(fields: dict[str, str], registry: SchemaRegistry | None) -> Outgoing:
    partition = fields["partition"]
    return Outgoing(
        _bytes("key", fields, registry),
        _bytes("value", fields, registry),
        [_header(number, line) for number, line in enumerate(fields["headers"].splitlines(), 1) if line.strip()],
        natural(partition, "partition") if partition else None,
    )


def _bytes(what: str, fields: dict[str, str], registry: SchemaRegistry | None) -> bytes | None:
    """What the fields of a form mean. Raises Failure."""
    form = fields[f"{what}_form"]
    text = fields[what].replace("\r\n", "\n")  # browsers send line breaks so
    match form:
        case "null":
            return None
        case "hex":
            try:
                return bytes.fromhex(text)
            except ValueError:
                raise Failure(f"the {what} is not hex: write pairs of digits such as 00 ff 10") from None
        case "JSON":
            try:
                json.loads(text)
            except (ValueError, RecursionError) as error:
                raise Failure(f"the {what} is not valid JSON: {error}") from None
            return text.encode()
        case "text":
            return text.encode()
        case "schema":
            return _encoded(what, text, fields, registry)
    raise Failure(f"{form!r} is no form of a {what}; use one of {', '.join(FORMS)}")


def _encoded(what: str, text: str, fields: dict[str, str], registry: SchemaRegistry | None) -> bytes:
    """A key or a value as the serializer of a registry writes it. Raises Failure."""
    if registry is None:
        raise Failure(f"the {what} cannot have a schema: the console was started without --registry")
    subject, version = fields[f"{what}_subject"].strip(), fields[f"{what}_version"].strip() or "latest"
    if not subject:
        raise Failure(f"the subject of the schema of the {what} is missing")
    if version != "latest":
        natural(version, "version")
    try:
        return registry.encode(text, subject, version, fields[f"{what}_message"].strip())
    except FormatError as problem:
        raise Failure(f"the {what} cannot be encoded: {problem}") from None


def _header(number: int, line: str) -> tuple[str, bytes | None]:
    """A line of the headers. Raises Failure."""
    if line.startswith("{"):
        try:
            fields = json.loads(line)
            name, content = fields["name"], fields["hex"]
            return str(name), None if content is None else bytes.fromhex(content)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Failure(f'line {number} of the headers is not {{"name": "NAME", "hex": "00ff"}}') from None
    name, colon, text = line.partition(":")
    if not colon or not name.strip():
        raise Failure(f"line {number} of the headers is not NAME: VALUE")
    return name.strip(), text.strip().encode()


def _lines(fields: dict[str, str]) -> list[Outgoing]:
    """JSON lines, as `moldau produce --json` reads them. Raises Failure."""
    read = JsonLines([])
    records: list[Outgoing] = []
    for number, line in enumerate(fields["lines"].splitlines(), 1):
        if not line.strip():
            continue
        if len(records) == _MAX_LINES:
            raise Failure(f"there are more than {_MAX_LINES} lines; use `moldau produce --json`")
        try:
            each = read(line.encode())
        except LineError as error:
            raise Failure(f"line {number}: {error}") from None
        records.append(Outgoing(each.key, each.value, each.headers, each.partition, each.timestamp_ms))
    if not records:
        raise Failure('there are no lines; write one object per line, such as {"key": "a", "value": "b"}')
    return records


ROUTES: Final = [
    Route("/topics/{name}/send", _page, methods=["GET"]),
    Route("/topics/{name}/send", _post, methods=["POST"]),
]
