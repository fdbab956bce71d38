"""The console in a headless Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs pip install 'moldau[console]'")

from moldau.console.faults import Control
from moldau.protocol.records import Record
from moldau.testing import Broker
from moldau.testing.browser import Browser
from moldau.testing.full_run import in_full_run
from moldau.testing.topic_requests import create_topic
from moldau.testing.waiting import wait_until

from .conftest import Console
from .test_schema_registry import ORDER, ORDER_BYTES, ORDER_VALUE, PROTO, framed, order_schema, register

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
    allowed = ("http://127.0.0.1:", "data:", "about:")
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
    consumer = confluent_consumer(bootstrap_servers, f"stuck-{topic}")
    consumer.commit(offsets=[partition(topic, 0, 1)], asynchronous=False)
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


def confluent_consumer(bootstrap_servers: str, group: str) -> Any:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    return confluent_kafka.Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})


def partition(topic: str, number: int, offset: int) -> Any:
    return pytest.importorskip("confluent_kafka").TopicPartition(topic, number, offset)


def choose(browser: Browser, name: str, value: str) -> None:
    """Select an option, as a user does."""
    browser.evaluate(
        f"(() => {{ const select = document.querySelector('select[name={name}]');"
        f" select.value = {json.dumps(value)}; select.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
    )


def violations(browser: Browser) -> list[str]:
    """What axe-core, which checks the guidelines for accessibility, finds on the page."""
    axe = pytest.importorskip("axe_core_python.base", reason="needs pip install axe-core-python")
    browser.evaluate(axe.AXE_SCRIPT + "; true")
    found = browser.evaluate("axe.run().then((result) => result.violations)")
    return [f"{each['id']}: {each['help']}: {[node['html'] for node in each['nodes']]}" for each in found]


def test_what_is_not_accessible_is_detected(browser: Browser) -> None:
    browser.open("data:text/html,<html lang=en><title>t</title><main><h1>t</h1><button></button></main>")
    assert [each.partition(":")[0] for each in violations(browser)] == ["button-name"]


UNNAMED = (
    "[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button')]"
    ".filter((each) => !each.labels?.length && !each.ariaLabel && !each.textContent.trim())"
    ".map((each) => each.outerHTML)"
)
HEADLESS = "[...document.querySelectorAll('th')].filter((each) => !each.scope).map((each) => each.outerHTML)"


# A phone and a desktop, in both themes.
DISPLAYS = pytest.mark.parametrize(
    "display", [(390, "dark"), (1280, "light"), *in_full_run((390, "light"), (1280, "dark"))], ids=str
)


# Links of the navigation and tabs that are outside the window, or outside a part of the page that scrolls.
OUTSIDE = (
    "[...document.querySelectorAll('.top nav a, .tabs a')].filter((each) => {"
    "  const link = each.getBoundingClientRect(), list = each.parentElement.getBoundingClientRect();"
    "  return link.right > Math.min(innerWidth, list.right + 1) || link.bottom > list.bottom + 1;"
    "}).map((each) => each.textContent)"
)


def check_screens(
    browser: Browser, console: Console, paths: list[str], display: tuple[int, str], problems: Collection[str] = ()
) -> None:
    """The screens in one size and theme of `DISPLAYS`. ``problems`` are the paths that have the page of a problem."""
    browser.display(display[0], 844, display[1])
    for path in [*paths, *problems]:
        browser.open(console.address + path)
        assert (browser.evaluate("document.title").split(" ")[0] == "Problem") == (path in problems), path
        assert width_fits(browser), path
        assert browser.evaluate(OUTSIDE) == [], path
        assert browser.evaluate(UNNAMED) == [], path
        assert browser.evaluate(HEADLESS) == [], path
        assert browser.evaluate("document.querySelectorAll('h1').length") == 1, path
        assert violations(browser) == [], path


@DISPLAYS
def test_every_screen_fits_a_phone_and_is_accessible(
    display: tuple[int, str],
    browser: Browser,
    console: Console,
    new_topic: Callable[..., str],
    send: Callable[..., int],
    bootstrap_servers: str,
) -> None:
    topic = new_topic(2)
    send(topic, [Record(0, 1_700_000_000_000, b"k" * 400, b"v" * 5000)])
    consumer = confluent_consumer(bootstrap_servers, f"seen-{topic}")
    consumer.commit(offsets=[partition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    console.post("/users", {"action": "set", "name": f"u-{topic}", "password": "x", "mechanism": "SCRAM-SHA-256",
                            "iterations": "4096"})  # fmt: skip
    console.post("/quotas", {"action": "set", "key": "producer_byte_rate", "value": "7e9", "user": f"u-{topic}"})
    console.post("/clients", {"action": "subscribe", "seconds": "60"})
    console.get(f"/group?id=seen-{topic}")
    paths = ["/", "/topics", "/create-topic", "/groups", "/transactions", "/clients", "/schemas", "/acls", "/users"]
    paths += ["/quotas", f"/group?id=seen-{topic}", f"/group/reset?id=seen-{topic}&way=earliest"]
    paths += [f"/topics/{topic}{screen}" for screen in ("", "/search", "/live", "/send", "/partitions", "/settings")]
    paths += [f"/topics/{topic}/0/0", f"/topics/{topic}/search?text=v"]
    problems = ("/nowhere", "/topics/none", f"/topics/{topic}?at=time&time=x")
    check_screens(browser, console, paths, display, problems)
    browser.console.clear()  # the pages that do not exist are reported there
    console.post("/clients", {"action": "unsubscribe"})


@DISPLAYS
def test_every_screen_of_a_registry_fits_a_phone_and_is_accessible(
    display: tuple[int, str],
    browser: Browser,
    decoding: Console,
    registry: str,
    new_topic: Callable[..., str],
    send: Callable[..., int],
) -> None:
    topic = new_topic()
    schema_id = order_schema(registry, f"{topic}-value")
    changed = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "<i>" + "x" * 300}]}
    reference = {"name": "shop.Customer", "subject": f"{topic}-value/customer", "version": 1}
    register(registry, f"{topic}-value", changed, references=[reference])
    register(registry, f"{topic}-{'long' * 40}", PROTO, "PROTOBUF")
    send(topic, [Record(0, 1_700_000_000_000, framed(schema_id, ORDER_BYTES), framed(schema_id, ORDER_BYTES))])
    send(topic, [Record(0, 1_700_000_000_000, None, framed(999_999, HOSTILE))])
    paths = ["/schemas", f"/schemas?q={topic}", f"/schemas/subject?subject={topic}-value", "/schemas?q=none"]
    paths += [f"/schemas/subject?subject={topic}-{'long' * 40}"]
    paths += [f"/topics/{topic}", f"/topics/{topic}/0/0", f"/topics/{topic}/0/1", f"/topics/{topic}/send?from=0:0"]
    paths += [f"/topics/{topic}/search?mode=where&text=value.id+%3D%3D+7", f"/topics/{topic}/live"]
    check_screens(browser, decoding, paths, display, problems=("/schemas/subject?subject=none",))
    browser.console.clear()  # the subject that does not exist is reported there


@DISPLAYS
def test_every_screen_of_a_secured_server_fits_a_phone_and_is_accessible(
    display: tuple[int, str], browser: Browser, secured_console: Console
) -> None:
    for principal in ("alice", "User:" + "long" * 40, HOSTILE.decode()):
        acl = {"action": "add", "principal": principal, "operation": "read", "resource": "topic", "name": "n" * 200}
        assert secured_console.post("/acls", acl).status == 303
    wait_until(lambda: "alice" in secured_console.get("/acls").text)
    check_screens(browser, secured_console, ["/acls", "/acls?q=none", "/acls?ask_principal=alice&ask_name=x"], display)


@DISPLAYS
def test_every_screen_of_faults_fits_a_phone_and_is_accessible(
    display: tuple[int, str], browser: Browser, new_console: Callable[..., Console], controlled: tuple[str, int]
) -> None:
    address, port = controlled
    console = new_console(address, control=Control("127.0.0.1", port))
    fault = {"action": "add", "kind": "error", "error": "NOT_LEADER_OR_FOLLOWER", "api": "Produce", "topic": "t" * 200}
    assert console.post("/faults", fault).status == 303
    check_screens(browser, console, ["/faults"], display)
    assert console.post("/faults", {"action": "clear"}).status == 303


def test_a_record_is_sent_with_a_schema_by_mouse(
    browser: Browser, decoding: Console, registry: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    order_schema(registry, f"{topic}-value")
    browser.open(f"{decoding.address}/topics/{topic}/send")
    subject = "[name=value_subject]"
    assert browser.evaluate(f"document.querySelector('{subject}').disabled")
    choose(browser, "value_form", "schema")
    assert browser.evaluate(f"document.querySelector('{subject}').value") == f"{topic}-value"
    assert not browser.evaluate(f"document.querySelector('{subject}').disabled")
    assert browser.evaluate("document.querySelector('[name=key_subject]').disabled")
    browser.evaluate("document.querySelector('[name=value]').value = '{\"id\": \"7\"}'")
    browser.follow("form[aria-labelledby=one] .primary")
    problem = browser.evaluate("document.querySelector('.problem').textContent")
    assert 'id: "7" is not an int' in problem
    browser.console.clear()  # the status of the refusal is reported there
    browser.evaluate(f"document.querySelector('[name=value]').value = {json.dumps(json.dumps(ORDER_VALUE))}")
    browser.follow("form[aria-labelledby=one] .primary")
    assert "The record was sent" in browser.evaluate("document.querySelector('.notice').textContent")
    assert browser.evaluate("document.querySelector('[name=value_form]').value") == "schema"
    browser.follow(".notice a")
    assert '"Anna"' in browser.evaluate("document.querySelector('pre').textContent")


def test_a_change_of_access_is_confirmed_with_what_was_typed(browser: Browser, console: Console) -> None:
    browser.open(f"{console.address}/users")
    values = {"name": "<b>eve</b>", "password": "s3cret", "iterations": "5000"}
    for name, value in values.items():
        browser.evaluate(f"document.querySelector('.card [name={name}]').value = {json.dumps(value)}")
    browser.click(".card .primary")
    summary = browser.evaluate("document.querySelector('dialog').innerText")
    assert "<b>eve</b>" in summary
    assert "SCRAM-SHA-512" in summary
    assert "s3cret" not in summary
    browser.press("Escape")
    assert browser.wait_for("document.querySelector('dialog') === null")
    browser.click(".card .primary")
    browser.follow("dialog button.danger")
    assert "The password was set" in browser.evaluate("document.querySelector('.notice').textContent")
    wait_until(lambda: "eve" in console.get("/users").text)
    console.post("/users", {"action": "remove", "name": "<b>eve</b>", "mechanism": "SCRAM-SHA-512"})


def test_a_quota_of_an_address_has_other_fields(browser: Browser, console: Console) -> None:
    browser.open(f"{console.address}/quotas")
    disabled = "[...document.querySelectorAll('.card input:disabled')].map((each) => each.name)"
    assert browser.evaluate(disabled) == ["ip"]
    choose(browser, "key", "connection_creation_rate")
    assert browser.evaluate(disabled) == ["user", "client_id"]


@pytest.mark.full
def test_a_broker_that_disappears_and_returns_is_explained_on_every_screen(browser: Browser) -> None:
    """No page is blank, and a live page continues by itself."""
    with Broker() as broker:
        create_topic(broker.bootstrap_servers, "events")
        console = Console(broker.bootstrap_servers)
        try:
            state = "document.querySelector('.stream').dataset.state"
            browser.open(f"{console.address}/topics/events/live")
            browser.wait_for(f"{state} === 'on'")
            broker.kill()
            browser.wait_for(f"{state} === 'off'")
            problem = "[...document.querySelectorAll('.problem')].map((each) => each.textContent).join()"
            assert "The page tries again by itself." in browser.evaluate(problem)
            broker.start()
            browser.wait_for(f"{state} === 'on'")
            assert "tries again" not in browser.evaluate(problem)
            broker.kill()
            paths = ["/", "/topics", "/groups", "/transactions", "/clients", "/acls", "/users", "/quotas"]
            paths += [
                f"/topics/events{screen}" for screen in ("", "/0/0", "/search", "/send", "/partitions", "/settings")
            ]
            for path in paths:
                browser.open(console.address + path)
                assert "cannot reach" in browser.evaluate(problem), path
                assert "Traceback" not in browser.evaluate("document.body.textContent"), path
            broker.start()
            browser.open(f"{console.address}/topics")
            assert "events" in browser.evaluate("document.querySelector('tbody').textContent")
            browser.console.clear()  # the pages without a broker are reported there
        finally:
            console.close()
