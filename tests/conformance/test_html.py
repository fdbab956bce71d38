"""The HTML report: its markup, and the page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from moldau.conformance import catalog
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.reports import json_report
from moldau.conformance.reports.html import SHOWN_BYTES, to_html
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.testing import Broker
from moldau.testing.browser import Browser

from .samples import HOSTILE, SAMPLES

Report = dict[str, Any]


@pytest.fixture(scope="module")
def report() -> Report:
    with Broker(thread=True, memory=True) as broker:
        target = Target(broker.bootstrap_servers)
        target.describe()
        return json_report.to_json(target.to_json(), Runner(target).run(SAMPLES), complete=True)


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(to_html(report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page_of_all_cases(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case of the suite: one in three has failed, one is inconclusive, one does not apply."""
    (sample,) = [case for case in report["cases"] if case["id"] == "produce.exchange.v9"]
    failure = {key: sample[key] for key in ("verdict", "reason", "what", "expected", "actual", "exchange", "differs")}
    others = [{"verdict": "inconclusive", "reason": "no topic"}, {"verdict": "not applicable", "reason": "no API"}]
    results = [Result(case, Verdict.PASSED, 0.1) for case in catalog.all_cases().values()]
    whole = json_report.to_json(report["server"], results, complete=True)
    for number, case in enumerate(whole["cases"]):
        case.update([failure, *others][number % 3])
    whole["summary"] = {verdict.value: 0 for verdict in Verdict}
    for case in whole["cases"]:
        whole["summary"][case["verdict"]] += 1
    path = tmp_path_factory.mktemp("report") / "all.html"
    path.write_text(to_html(whole), encoding="utf-8")
    return path


class _Elements(HTMLParser):
    def __init__(self, markup: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


# Without a browser


def test_a_hostile_message_is_text(report: Report) -> None:
    markup = to_html(report)

    elements = _Elements(markup).found
    assert HOSTILE not in markup
    assert [tag for tag, _ in elements].count("script") == 2
    assert not [tag for tag, attributes in elements if tag == "img" or "onerror" in attributes or "src" in attributes]


def test_kips_and_messages_are_links(report: Report) -> None:
    links = {attributes["href"] for tag, attributes in _Elements(to_html(report)).found if tag == "a"}

    assert "https://kafka.apache.org/protocol#The_Messages_Produce" in links
    assert any("KIP-98" in str(link) for link in links)


def test_characters_that_html_does_not_have_are_replaced(report: Report) -> None:
    case = {**report["cases"][0], "reason": "null \0 and half a pair \ud800", "verdict": "inconclusive"}

    assert to_html({**report, "cases": [case]}).encode("utf-8")


def test_a_report_without_cases_is_a_page(report: Report) -> None:
    markup = to_html({**report, "cases": [], "summary": dict.fromkeys(report["summary"], 0)})

    assert "No case was tested" in markup


def test_long_frames_are_shortened(report: Report) -> None:
    (failed,) = [case for case in report["cases"] if case["id"] == "produce.exchange.v9"]
    frame = {**failed["exchange"][-1], "hex": "ab" * 100_000, "size": 100_000}
    markup = to_html({**report, "cases": [{**failed, "exchange": [frame]}]})

    assert len(max(re.findall("(?:ab)+", markup))) == 2 * SHOWN_BYTES


def test_the_field_that_differs_is_known(report: Report) -> None:
    (failed,) = [case for case in report["cases"] if case["id"] == "produce.exchange.v9"]
    differs = failed["differs"]
    frame = failed["exchange"][differs["frame"]]

    assert frame["title"] == "Produce v9 response"
    assert differs["paths"] == [["responses", 0, "partition_responses", 0, "base_offset"]]
    ((first, end),) = differs["bytes"]
    assert (frame["hex"][2 * first : 2 * end], end - first) == ("00" * 8, 8)


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def visible(browser: Browser) -> list[str]:
    """The IDs of the cases that the page shows."""
    return list(browser.evaluate("[...document.querySelectorAll('.case')].filter(e => e.offsetParent).map(e => e.id)"))


# Elements that end to the right of a place.
OUTSIDE = "[...document.querySelectorAll('body *:not(.skip)')].filter(e => e.getBoundingClientRect().right >"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (360, 740)], ids=["wide", "narrow"])
def test_the_page_fits_and_is_readable(browser: Browser, page: Path, width: int, height: int, scheme: str) -> None:
    browser.display(width, height, scheme)
    browser.open(page)
    browser.evaluate("document.querySelectorAll('.case, .frame').forEach(each => each.open = true)")
    browser.evaluate("new Promise(done => setTimeout(done))")  # `toggle` events
    browser.evaluate("document.querySelectorAll('.frame').forEach(each => each.open = true)")

    assert browser.screenshot(page.with_name(f"{width}-{scheme}.png"), whole=True).startswith(b"\x89PNG")
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(f"{OUTSIDE} {width} && !e.closest('pre')).map(e => e.outerHTML.slice(0, 200))") == []
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) > 380) == (scheme == "light")
    assert browser.evaluate(CONTRASTS) == []


@pytest.mark.parametrize(
    ("width", "height"), [(1280, 900), pytest.param(360, 740, marks=pytest.mark.full)], ids=["wide", "narrow"]
)
def test_a_page_of_all_cases_fits(browser: Browser, page_of_all_cases: Path, width: int, height: int) -> None:
    browser.display(width, height, "light")
    browser.open(page_of_all_cases)

    assert browser.evaluate("document.documentElement.scrollWidth") == width
    matrices = OUTSIDE.replace("body *:not(.skip)", "header *, #summary *, #areas *, #apis *, #filters *")
    assert browser.evaluate(f"{matrices} {width}).map(e => e.outerHTML.slice(0, 200))") == []
    # A count stays in one line, and a name of an area breaks only between its words.
    lines = "(e) => { const r = document.createRange(); r.selectNodeContents(e); return r.getClientRects().length; }"
    assert browser.evaluate(f"[...document.querySelectorAll('#areas td button')].every(e => ({lines})(e) === 1)")
    assert browser.evaluate(f"[...document.querySelectorAll('#areas th button')].every(e => ({lines})(e) <= 2)")


def test_a_page_of_all_cases_opens_one_of_them(browser: Browser, page_of_all_cases: Path) -> None:
    browser.display(1280, 900, "light")
    browser.open(page_of_all_cases)
    everything = list(catalog.all_cases())
    assert len(visible(browser)) == len(everything)
    # The layout of the cases that are out of view is not computed, so that each filter takes a moment.
    assert browser.evaluate(
        "!document.querySelector('.not-applicable.case .name').checkVisibility(SKIPPED)".replace(
            "SKIPPED", "{ contentVisibilityAuto: true }"
        )
    )
    last = everything[(len(everything) - 1) // 3 * 3]
    browser.evaluate(f"location.hash = '#{last}'")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    assert browser.evaluate(f"document.getElementById('{last}').querySelectorAll('.frame.differs mark').length") >= 2
    top = browser.evaluate(f"document.getElementById('{last}').getBoundingClientRect().top")
    assert 0 <= top < 900


# Texts whose contrast with their background is below 4.5 (WCAG AA).
CONTRASTS = """
(() => {
  const channels = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const light = (color) => channels(color).slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const back = (e) => { while (e) { const c = getComputedStyle(e).backgroundColor;
    if (channels(c)[3] !== 0) return c; e = e.parentElement; } return "rgb(255, 255, 255)"; };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    if (!e.offsetParent || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(back(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push([e.outerHTML.slice(0, 100), (a + 0.05) / (b + 0.05)]);
  }
  return found;
})()
"""


def test_the_page_requests_nothing_and_logs_nothing(browser: Browser, page: Path) -> None:
    browser.requests.clear()
    browser.console.clear()
    browser.open(page)
    browser.evaluate("document.querySelectorAll('.case').forEach(each => each.open = true)")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")

    assert browser.requests == [page.as_uri()]
    assert browser.console == []
    assert "taken" not in browser.evaluate("document.title")


def test_the_policy_of_the_page_forbids_requests(browser: Browser, page: Path) -> None:
    browser.open(page)

    assert browser.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"
    assert any("Content Security Policy" in message for message in browser.console)
    browser.console.clear()


def test_filters_restrict_the_cases(browser: Browser, page: Path) -> None:
    browser.display(1280, 900, "light")
    browser.open(page)
    assert len(visible(browser)) == len(SAMPLES)

    def choose(name: str, value: str) -> None:
        browser.evaluate(
            f"(() => {{ const e = document.getElementById('{name}'); e.value = '{value}';"
            " e.dispatchEvent(new Event('input', { bubbles: true })); })()"
        )

    choose("area", "groups")
    assert set(visible(browser)) == {"groups.hostile", "groups.setup", "groups.crash", "groups.passes"}
    choose("verdict", "failed")
    assert set(visible(browser)) == {"groups.hostile", "groups.crash"}
    choose("level", "should")
    assert visible(browser) == ["groups.hostile"]
    choose("layer", "wire")
    assert visible(browser) == []
    assert browser.evaluate("document.getElementById('none').offsetParent !== null")
    browser.click("#filters [type=reset]")
    browser.evaluate("new Promise(done => setTimeout(done))")
    assert len(visible(browser)) == len(SAMPLES)
    choose("text", "exchange KIP-98")
    assert set(visible(browser)) == {"produce.exchange.v8", "produce.exchange.v9", "produce.exchange.v99"}
    assert browser.evaluate("document.getElementById('count').value") == f"3 of {len(SAMPLES)} cases"


def test_tiles_and_matrices_set_the_filters(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click(".tile.inconclusive")
    assert visible(browser) == ["groups.setup"]
    browser.click("#areas td.passed button[data-area=produce]")
    assert visible(browser) == ["produce.exchange.v8"]
    browser.click(".chip.failed")
    assert visible(browser) == ["produce.exchange.v9"]
    browser.click("#version")
    assert len(visible(browser)) == len(SAMPLES)


def test_a_failing_case_opens_its_exchange_with_the_keyboard_alone(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.press("/")
    for letter in "v9":
        browser.press(letter)
    assert browser.evaluate("document.getElementById('text').value") == "v9"
    browser.evaluate("document.querySelector('[id=\"produce.exchange.v9\"] > summary').focus()")
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")

    text = browser.evaluate("document.getElementById('produce.exchange.v9').innerText")
    assert "Produce v9 response" in text
    assert "error_code: 0 (NONE)" in text
    assert browser.evaluate("document.querySelector('.frame.differs .decoded mark').innerText") == (
        "base_offset: 0\nexpected 7"
    )
    marked = browser.evaluate("[...document.querySelectorAll('.frame.differs .hex mark')].map(e => e.textContent)")
    assert " ".join(marked) == " ".join(["00"] * 8)
    browser.press("/")
    browser.press("Escape")
    assert len(visible(browser)) == len(SAMPLES)


def test_a_link_to_a_case_opens_it(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.evaluate("location.hash = '#groups.hostile'")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")

    assert browser.evaluate("document.getElementById('groups.hostile').open")
    assert "onerror=alert" in browser.evaluate("document.getElementById('groups.hostile').innerText")
