"""The console in a headless Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from moldau.protocol.records import Record
from moldau.testing.browser import Browser

from .conftest import Console

pytestmark = pytest.mark.slow

HOSTILE = b"<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_foreign(browser: Browser, console: Console) -> Iterator[None]:
    """Each test leaves no message on the browser's console, and no request to another host."""
    browser.display(1280, 800, "light")
    browser.console.clear()
    browser.requests.clear()
    yield
    assert browser.console == []
    allowed = (f"{console.address}/", "data:", "about:")
    assert [address for address in browser.requests if not address.startswith(allowed)] == []


def width_fits(browser: Browser) -> bool:
    return bool(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_a_user_reads_a_record_by_keyboard_and_mouse(
    browser: Browser, console: Console, new_topic: Callable[..., str], send: Callable[..., int]
) -> None:
    topic = new_topic()
    send(topic, [Record(0, 1_700_000_000_000, b"key", b'{"id": 7, "text": "Z\xc3\xbcrich"}')])
    send(topic, [Record(0, 1_700_000_000_001, HOSTILE, HOSTILE, [(HOSTILE.decode(), HOSTILE)])])
    browser.open(f"{console.address}/topics")
    browser.press("/")
    assert browser.evaluate("document.activeElement.name") == "q"
    for character in topic:
        browser.press(character)
    with browser.loading():
        browser.press("Enter")
    browser.follow("tbody a")
    assert browser.evaluate("document.title") == f"{topic} · Moldau console"
    for _ in range(2):  # the details open and close
        browser.click("[data-open]")
        shown = browser.wait_for("document.querySelector('.expanded pre')?.textContent")
        assert shown == HOSTILE.decode()
        assert browser.evaluate("document.querySelector('[data-open]').getAttribute('aria-expanded')") == "true"
        browser.click("[data-open]")
        assert browser.evaluate("document.querySelector('.expanded')") is None
    assert browser.evaluate("document.title") == f"{topic} · Moldau console"
    browser.follow(f"a[href='/topics/{topic}/0/0']")
    assert "Zürich" in browser.evaluate("document.querySelector('pre').textContent")


def test_pages_fit_a_phone_and_the_theme_is_kept(
    browser: Browser, console: Console, new_topic: Callable[..., str], send: Callable[..., int]
) -> None:
    topic = new_topic(2)
    send(topic, [Record(0, 1_700_000_000_000, b"k" * 400, b"v" * 5000), Record(0, 1_700_000_000_001, None, HOSTILE)])
    browser.display(390, 844, "dark")
    for path in (f"/topics?q={topic}", f"/topics/{topic}", f"/topics/{topic}/0/0", f"/topics/{topic}/partitions"):
        browser.open(console.address + path)
        assert width_fits(browser), path
    color = "getComputedStyle(document.body.parentElement).backgroundColor"
    dark = browser.evaluate(color)
    browser.click("#theme")
    light = browser.evaluate(color)
    assert light != dark
    browser.open(f"{console.address}/topics")
    assert browser.evaluate(color) == light
    browser.click("#theme")
    assert browser.evaluate(color) == dark
    browser.evaluate("localStorage.clear()")


def test_a_search_shows_what_it_finds_and_its_progress(
    browser: Browser, console: Console, new_topic: Callable[..., str], send: Callable[..., int]
) -> None:
    topic = new_topic()
    send(topic, [Record(0, 1_700_000_000_000, b"k%d" % number, b'{"id": %d}' % number) for number in range(300)])
    send(topic, [Record(0, 1_700_000_000_001, HOSTILE, HOSTILE)])
    browser.open(f"{console.address}/topics/{topic}/search")
    browser.evaluate("document.querySelector('[name=text]').value = 'value.id > 296 or value contains \"onerror\"'")
    browser.evaluate("document.querySelector('[name=mode]').value = 'where'")
    browser.follow(".bar .primary")
    status = "document.querySelector('[data-status]').textContent"
    assert browser.wait_for(f"{status}.endsWith('Done.') && {status}").startswith("4 records found, 301 of 301 offsets")
    previews = "[...document.querySelectorAll('.value .preview')].map((each) => each.textContent)"
    assert browser.evaluate(previews) == [HOSTILE.decode(), '{"id": 299}', '{"id": 298}', '{"id": 297}']
    assert browser.evaluate("document.title") == f"Search in {topic} · Moldau console"
    assert browser.evaluate("document.querySelector('[data-stop]').hidden")


def test_a_live_page_follows_pauses_and_continues(
    browser: Browser, console: Console, new_topic: Callable[..., str], send: Callable[..., int]
) -> None:
    topic = new_topic()
    send(topic, [Record(0, 1_700_000_000_000, None, b"before")])
    browser.open(f"{console.address}/topics/{topic}/live")
    browser.wait_for("document.querySelector('.stream').dataset.state === 'on'")
    send(topic, [Record(0, 1_700_000_000_001, None, HOSTILE)])
    values = "[...document.querySelectorAll('.value .preview')].map((each) => each.textContent)"
    browser.wait_for("document.querySelector('.value .preview')")
    assert browser.evaluate(values) == [HOSTILE.decode()]
    browser.click("[data-open]")
    assert browser.wait_for("document.querySelector('.expanded pre')?.textContent") == HOSTILE.decode()
    browser.click("[data-pause]")
    assert "Paused." in browser.evaluate("document.querySelector('[data-status]').textContent")
    for _ in range(3):
        send(topic, [Record(0, 1_700_000_000_002, None, b"%d" % number) for number in range(40)])
    browser.click("[data-pause]")
    status = "document.querySelector('[data-status]').textContent"
    text = browser.wait_for(f"{status}.includes('omitted') && {status}")
    assert text == "Live. 51 records shown, 70 records omitted because they came too fast."
    assert browser.evaluate(f"{values}.slice(0, 2)") == ["39", "38"]
    assert browser.evaluate("document.querySelectorAll('.expanded').length") == 1
    assert browser.evaluate("document.title") == f"Live: {topic} · Moldau console"


def test_a_consumer_that_stands_still_leads_to_the_transaction_that_blocks_it(
    browser: Browser,
    console: Console,
    new_topic: Callable[..., str],
    send: Callable[..., int],
    bootstrap_servers: str,
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    topic = new_topic()
    send(topic, [Record(0, 1_700_000_000_000, None, b"first")])
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": f"id-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap_servers, "group.id": f"stuck-{topic}"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()

    browser.open(console.address)
    browser.follow("nav a[href='/groups']")
    browser.follow(f"a[href='/group?id=stuck-{topic}']")
    assert "open transaction since offset 1" in browser.evaluate("document.querySelector('td .badge.warn').textContent")
    browser.follow("td .badge.warn")
    assert f"id-{topic}" in browser.evaluate("document.querySelector('tbody').textContent")
    browser.click("tbody button.danger")
    assert "Abort the transaction" in browser.evaluate("document.querySelector('dialog').textContent")
    browser.press("Escape")
    assert browser.wait_for("document.querySelector('dialog') === null")
    browser.click("tbody button.danger")
    browser.follow("dialog button.danger")
    assert "was aborted" in browser.evaluate("document.querySelector('.notice').textContent")


def violations(browser: Browser) -> list[str]:
    """What axe-core, which checks the guidelines for accessibility, finds on the page."""
    axe = pytest.importorskip("axe_core_python.base", reason="needs pip install axe-core-python")
    browser.evaluate(axe.AXE_SCRIPT + "; true")
    found = browser.evaluate("axe.run().then((result) => result.violations)")
    return [f"{each['id']}: {each['help']}: {[node['html'] for node in each['nodes']]}" for each in found]


def test_what_is_not_accessible_is_detected(browser: Browser) -> None:
    browser.open("data:text/html,<html lang=en><title>t</title><main><h1>t</h1><button></button></main>")
    assert [each.partition(":")[0] for each in violations(browser)] == ["button-name"]


def test_every_screen_fits_a_phone_and_is_accessible(
    browser: Browser, console: Console, new_topic: Callable[..., str], send: Callable[..., int]
) -> None:
    topic = new_topic(2)
    send(topic, [Record(0, 1_700_000_000_000, b"k" * 400, b"v" * 5000)])
    paths = ["/", "/topics", "/create-topic", "/groups", "/transactions", "/nowhere", f"/topics/{topic}"]
    paths += [f"/topics/{topic}/{screen}" for screen in ("search", "live", "send", "partitions", "settings", "0/0")]
    unnamed = (
        "[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button')]"
        ".filter((each) => !each.labels?.length && !each.ariaLabel && !each.textContent.trim())"
        ".map((each) => each.outerHTML)"
    )
    headless = "[...document.querySelectorAll('th')].filter((each) => !each.scope).map((each) => each.outerHTML)"
    for width, scheme in ((390, "dark"), (1280, "light")):
        browser.display(width, 844, scheme)
        for path in paths:
            browser.open(console.address + path)
            assert width_fits(browser), path
            assert browser.evaluate(unnamed) == [], path
            assert browser.evaluate(headless) == [], path
            assert browser.evaluate("document.querySelectorAll('h1').length") == 1, path
            assert violations(browser) == [], path
    browser.console.clear()  # the page that does not exist is reported there
