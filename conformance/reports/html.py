"""The report as one HTML page, made from the JSON report.

The page loads nothing: styles and script are inside it, and its Content-Security-Policy permits only these, by their
hashes. What the server sent is text, never markup. Without JavaScript all cases are readable; filters and exchanges
need it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Any, Final, NamedTuple

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ..case import Layer, Level
from ..outcome import Verdict

SHOWN_BYTES: Final = 4_096
"""The bytes of a frame that the page has; the JSON report has more."""

_SYMBOLS: Final = {
    Verdict.PASSED: "✓",
    Verdict.FAILED: "✗",
    Verdict.NOT_APPLICABLE: "–",
    Verdict.INCONCLUSIVE: "?",
}
_ORDER: Final = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.NOT_APPLICABLE)
"""The order of the cases, and which verdict counts for several cases of one version."""
_KIP: Final = re.compile(r"\bKIP-\d+\b")
_MESSAGE: Final = re.compile(r"Protocol: (\w+)")
_KIP_PAGE: Final = "https://cwiki.apache.org/confluence/dosearchsite.action?cql="
_PROTOCOL_PAGE: Final = "https://kafka.apache.org/protocol#The_Messages_"


class Html(NamedTuple):
    """A piece of markup; every other text is escaped."""

    markup: str


def to_html(report: Mapping[str, Any]) -> str:
    """The page for a report of `json_report.to_json`."""
    style, script = _file("page.css"), _file("page.js")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    address = str(report["server"].get("address", "unknown server"))
    cases = sorted(report["cases"], key=lambda case: _ORDER.index(Verdict(case["verdict"])))
    head = _join(
        Html('<meta charset="utf-8">'),
        _tag("meta", http_equiv="Content-Security-Policy", content=policy),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        _element("title", f"{_headline(report)} - {address} - Kafka conformance"),
        Html(f"<style>{style}</style>"),
    )
    body = _join(
        _element("a", "Skip to the cases", class_="skip", href="#cases"),
        _header(report, address),
        _element("main", _summary(report), _areas(report), _apis(cases), _list(cases, address)),
        Html(f'<script type="application/json" id="exchanges">{_exchanges(cases)}</script>'),
        Html(f"<script>{script}</script>"),
    )
    return f'<!doctype html>\n<html lang="en">\n<head>{head.markup}</head>\n<body>{body.markup}</body>\n</html>\n'


# The parts of the page


def _header(report: Mapping[str, Any], address: str) -> Html:
    server = report["server"]
    brokers = server.get("brokers", {})
    facts = [
        ("protocol of", f"Apache Kafka {server.get('protocolOfApacheKafka', 'unknown')}"),
        ("APIs", str(len(server.get("apis", {})))),
        ("brokers", str(len(brokers))),
        ("cluster ID", str(server.get("clusterId"))),
        ("tested by", f"Moldau {report.get('moldau', '')}"),
    ]
    pairs = [_element("div", _element("dt", name), _element("dd", value)) for name, value in facts]
    return _element(
        "header", _element("p", "Kafka conformance"), _element("h1", address), _element("dl", *pairs, class_="facts")
    )


def _headline(report: Mapping[str, Any]) -> str:
    counts = report["summary"]
    passed, failed = counts[Verdict.PASSED], counts[Verdict.FAILED]
    if not passed + failed:
        return "No case was tested"
    if failed:
        return f"{failed} of {passed + failed} cases failed"
    return f"All {passed} applicable cases passed" if passed > 1 else "1 applicable case passed"


def _summary(report: Mapping[str, Any]) -> Html:
    counts = report["summary"]
    total = sum(counts.values()) or 1
    parts, at = [], 0.0
    for verdict in (Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE):
        width = 100 * counts[verdict] / total
        parts.append(_element("rect", class_=_class(verdict), x=f"{at:.3f}", width=f"{width:.3f}", height="4"))
        at += width
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
    bar = _element(
        "svg", *parts, class_="bar", viewBox="0 0 100 4", preserveAspectRatio="none", role="img", aria_label=words
    )
    levels = Counter(case["level"] for case in report["cases"] if case["verdict"] == Verdict.FAILED)
    failed_by_level = ", ".join(f"{levels[level]} {level}" for level in Level if levels[level])
    tiles = [
        _element(
            "button",
            _element("strong", str(counts[verdict])),
            Html(" "),
            _element("span", f"{_SYMBOLS[verdict]} {verdict}"),
            *([_element("small", failed_by_level)] if verdict is Verdict.FAILED and failed_by_level else []),
            type="button",
            class_=f"tile {_class(verdict)}",
            data_verdict=verdict.value,
        )
        for verdict in Verdict
    ]
    incomplete = _element("p", "The run ended early: remaining cases are inconclusive.", class_="note")
    return _element(
        "section",
        _element("h2", _headline(report)),
        *([] if report.get("complete", True) else [incomplete]),
        bar,
        _element("div", *tiles, class_="tiles"),
        id="summary",
    )


def _areas(report: Mapping[str, Any]) -> Html:
    areas: dict[str, Counter[str]] = {}
    for case in report["cases"]:
        areas.setdefault(case["area"], Counter())[case["verdict"]] += 1
    heads = [
        _element(
            "th",
            _element("span", _SYMBOLS[verdict], aria_hidden="true"),
            _element("span", f" {verdict}", class_="word"),
            scope="col",
        )
        for verdict in Verdict
    ]
    rows = []
    for area, counts in sorted(areas.items()):
        cells = [_element("th", _element("button", area, type="button", data_area=area), scope="row")]
        for verdict in Verdict:
            count = counts[verdict]
            button = _element(
                "button",
                str(count),
                type="button",
                data_area=area,
                data_verdict=verdict.value,
                aria_label=f"{area}: {count} {verdict}",
            )
            cells.append(_element("td", *([button] if count else [Html("")]), class_=_class(verdict)))
        rows.append(_element("tr", *cells))
    head = _element("thead", _element("tr", _element("th", "area", scope="col"), *heads))
    return _element(
        "section",
        _element("h2", "Areas"),
        _element("table", head, _element("tbody", *rows)),
        id="areas",
    )


def _apis(cases: Sequence[Mapping[str, Any]]) -> Html:
    """Each API with its versions. The verdict of a version is the worst of its cases."""
    apis: dict[str, dict[int, list[Verdict]]] = {}
    for case in cases:
        if "api" in case:
            apis.setdefault(case["api"], {}).setdefault(case["version"], []).append(Verdict(case["verdict"]))
    if not apis:
        return Html("")
    items = []
    for api, versions in sorted(apis.items()):
        chips = [_element("li", _chip(api, version, verdicts)) for version, verdicts in sorted(versions.items())]
        items.append(_element("div", _element("h3", api), _element("ul", *chips)))
    legend = "Each number is a version. ✓ all its cases passed, ✗ one failed, ? one is inconclusive, – it is missing."
    return _element(
        "section",
        _element("h2", "Versions of APIs"),
        _element("p", legend, class_="note"),
        _element("div", *items, class_="apis"),
        id="apis",
    )


def _chip(api: str, version: int, verdicts: Sequence[Verdict]) -> Html:
    worst = next(verdict for verdict in _ORDER if verdict in verdicts)
    counts = Counter(verdicts)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    return _element(
        "button",
        _element("span", _SYMBOLS[worst], aria_hidden="true"),
        str(version),
        type="button",
        class_=f"chip {_class(worst)}",
        data_api=f"{api} v{version}",
        title=f"{api} v{version}: {words}",
        aria_label=f"{api} version {version}: {words}",
    )


def _list(cases: Sequence[Mapping[str, Any]], address: str) -> Html:
    groups = []
    for verdict in _ORDER:
        of_verdict = [case for case in cases if case["verdict"] == verdict]
        if of_verdict:
            title = _element("h3", f"{_SYMBOLS[verdict]} {verdict} ", _element("span", str(len(of_verdict))))
            shown = (_case(case, address) for case in of_verdict)
            groups.append(_element("section", title, *shown, class_=f"group {_class(verdict)}"))
    areas = sorted({case["area"] for case in cases})
    search = _element(
        "label",
        _element("span", "Text ", _element("kbd", "/")),
        _tag("input", type="search", id="text", placeholder="ID, title, KIP, reason", autocomplete="off"),
    )
    form = _element(
        "form",
        search,
        _choice("area", areas),
        _choice("verdict", [verdict.value for verdict in Verdict]),
        _choice("level", [level.value for level in Level]),
        _choice("layer", [layer.value for layer in Layer]),
        _element("button", "", type="button", id="version", hidden=""),
        _element("button", "Show all", type="reset"),
        _element("output", f"{len(cases)} cases", id="count", aria_live="polite"),
        id="filters",
        role="search",
    )
    return _element(
        "section",
        _element("h2", "Cases"),
        _element("noscript", _element("p", "Filters and exchanges need JavaScript.", class_="note")),
        form,
        *groups,
        _element("p", "No case has all of these properties.", id="none", hidden=""),
        id="cases",
        tabindex="-1",
    )


def _choice(name: str, values: Iterable[str]) -> Html:
    options = [_element("option", f"all {name}s", value="")]
    options += [_element("option", value, value=value) for value in values]
    return _element("label", _element("span", name), _element("select", *options, id=name))


def _case(case: Mapping[str, Any], address: str) -> Html:
    verdict = Verdict(case["verdict"])
    parts = []
    if verdict is Verdict.FAILED:
        parts.append(
            _element(
                "dl",
                *_pair("field or step", case.get("what", ""), class_="code"),
                *_pair("expected", case.get("expected", ""), class_="code expected"),
                *_pair("actual", case.get("actual", ""), class_="code actual"),
                class_="difference",
            )
        )
    elif case.get("reason"):
        parts.append(_element("p", case["reason"], class_="reason"))
    pairs = [*_pair("sends", case.get("sends", "")), *_pair("expects", case.get("expects", ""))]
    pairs += [*_pair("why", case.get("why", "")), *_pair("source", *_linked(case.get("source", "")))]
    if verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE):
        pairs += _pair("run again", f"moldau conformance {address} --case {case['id']}", class_="code")
    parts.append(_element("dl", *pairs, class_="explanation"))
    if case.get("exchange"):
        parts.append(_element("div", class_="exchange"))
    summary = _element(
        "summary",
        _element("span", _SYMBOLS[verdict], class_="symbol", title=verdict.value),
        _element("span", _element("code", case["id"]), Html(" "), _element("span", case["title"]), class_="name"),
        _element("span", case["level"], class_=f"level {case['level']}"),
    )
    searched = " ".join(str(case.get(key, "")) for key in ("id", "title", "source", "reason"))
    return _element(
        "details",
        summary,
        _element("div", *parts, class_="body"),
        class_=f"case {_class(verdict)}",
        id=case["id"],
        data_area=case["area"],
        data_verdict=verdict.value,
        data_level=case["level"],
        data_layer=case["layer"],
        data_text=searched.lower(),
        **({"data_api": f"{case['api']} v{case['version']}"} if "api" in case else {}),
    )


def _pair(name: str, *value: str | Html, class_: str = "") -> list[Html]:
    return [_element("dt", name), _element("dd", *value, **({"class_": class_} if class_ else {}))]


def _linked(source: str) -> list[str | Html]:
    """A source with links: KIPs to their pages, messages to the description of the protocol."""
    parts: list[str | Html] = []
    at = 0
    for found in re.finditer(f"{_KIP.pattern}|{_MESSAGE.pattern}", source):
        parts.append(source[at : found.start()])
        at = found.end()
        text = found.group()
        if _KIP.fullmatch(text):
            address = f"{_KIP_PAGE}space%3DKAFKA%20and%20title~%22{text}%22"
        elif any(found.group(1) == api.message_name for api in ApiKey):
            address = _PROTOCOL_PAGE + found.group(1)
        else:
            parts.append(text)
            continue
        parts.append(_element("a", text, href=address, rel="noreferrer"))
    return [*parts, source[at:]]


def _exchanges(cases: Iterable[Mapping[str, Any]]) -> str:
    """The exchanges by case, and the names of error codes, as JSON that can be inside a script element."""
    found = {
        case["id"]: {
            "frames": [
                frame if len(frame["hex"]) <= 2 * SHOWN_BYTES else {**frame, "hex": frame["hex"][: 2 * SHOWN_BYTES]}
                for frame in case["exchange"]
            ],
            "differs": case.get("differs"),
            "expected": case.get("expected", ""),
        }
        for case in cases
        if case.get("exchange")
    }
    errors = {int(each): each.name for each in ErrorCode} if found else {}
    # ASCII only; "<" would end the element, and ">" or "&" need no escape in it.
    return json.dumps({"errors": errors, "cases": found}, separators=(",", ":")).replace("<", "\\u003c")


# Markup


def _element(name: str, *children: str | Html, **attributes: str) -> Html:
    return Html(f"{_tag(name, **attributes).markup}{_join(*children).markup}</{name}>")


def _tag(name: str, **attributes: str) -> Html:
    """`class_` and `data_area` become `class` and `data-area`."""
    given = (f' {key.strip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{''.join(given)}>")


def _join(*parts: str | Html) -> Html:
    return Html("".join(part.markup if isinstance(part, Html) else _escaped(part) for part in parts))


def _escaped(text: str) -> str:
    """Markup for a text; characters that a file in UTF-8 or HTML cannot have are replaced."""
    text = text.encode("utf-8", "replace").decode().replace("\0", "�")
    return escape(text)


def _class(verdict: Verdict) -> str:
    return verdict.value.replace(" ", "-")


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
