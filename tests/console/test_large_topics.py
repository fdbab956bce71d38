"""A topic with ten million records, and 50,000 records per second, in the browser.

Times depend on the machine, so the tests compare: the large topic with a small one, and what the live page counts with
what was sent. With ``-s`` they print the times, which docs/console.md has.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

pytest.importorskip("starlette", reason="needs pip install 'moldau[console]'")

from moldau.protocol.records import Record, build_batch
from moldau.testing import Broker
from moldau.testing.browser import Browser
from moldau.testing.builders import produce_request
from moldau.testing.topic_requests import create_topic
from moldau.testing.wire import WireClient

from .conftest import Console

pytestmark = [pytest.mark.slow, pytest.mark.extended, pytest.mark.timeout(1200)]

BATCH = 2_500
FEW = 10_000
RECORDS = 10_000_000
SMALL_BATCH = 500
RATE = 50_000
SECONDS = 20
FRAMES = """
window.gaps = [];
(function measure(last) {
  requestAnimationFrame((now) => { gaps.push(now - last); measure(now); });
})(performance.now());
true
"""


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[str, Console, Browser]]:
    """A broker of its own, a console of it, and a browser."""
    with Broker() as broker, Browser() as browser:
        console = Console(broker.bootstrap_servers)
        yield broker.bootstrap_servers, console, browser
        console.close()


def batch(count: int) -> bytes:
    text = '{"id": %d, "text": "abcdefghijklmnopqrstuvwxyz"}'
    return build_batch([Record(i, 1_700_000_000_000 + i, b"k%d" % i, (text % i).encode()) for i in range(count)])


def seconds(action: Callable[[], object]) -> float:
    """The shortest of five times."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return min(times)


def test_ten_million_records_open_like_a_few(started: tuple[str, Console, Browser]) -> None:
    bootstrap_servers, console, browser = started
    topics = {"few": FEW, "many": RECORDS}
    records = batch(BATCH)
    with WireClient(bootstrap_servers) as wire:
        for topic, count in topics.items():
            create_topic(bootstrap_servers, topic)
            for _ in range(count // BATCH):
                answer = wire.call(produce_request(topic, records, acks=1), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
    pages = {
        "newest": ("/topics/{}", "/topics/{}"),
        "at an offset": ("/topics/few?at=offset&offset=5000", "/topics/many?at=offset&offset=5000000"),
        "one record": ("/topics/few/0/7654", "/topics/many/0/7654321"),
    }
    for name, (few, many) in pages.items():
        times = [
            seconds(partial(browser.open, console.address + path)) for path in (few.format("few"), many.format("many"))
        ]
        print(f"\n{name}: {times[0]:.3f} s of {FEW:,} records, {times[1]:.3f} s of {RECORDS:,}")
        assert "7654321" in browser.evaluate("document.body.textContent") or name != "one record"
        # A thousand times as many records; what opens a page does not depend on their number.
        assert times[1] < 10 * times[0], name


def test_a_fast_topic_stays_readable_and_nothing_is_counted_twice_or_lost(
    started: tuple[str, Console, Browser],
) -> None:
    bootstrap_servers, console, browser = started
    create_topic(bootstrap_servers, "fast")
    browser.display(1280, 800, "light")
    browser.open(f"{console.address}/topics/fast/live")
    browser.wait_for("document.querySelector('.stream').dataset.state === 'on'")
    browser.evaluate(FRAMES)
    sent = 0
    small = batch(SMALL_BATCH)
    ended = threading.Event()

    def send() -> None:
        nonlocal sent
        begin = time.monotonic()
        with WireClient(bootstrap_servers) as wire:
            while time.monotonic() < begin + SECONDS:
                answer = wire.call(produce_request("fast", small, acks=1), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
                sent += SMALL_BATCH
                ended.wait(max(0.0, begin + sent / RATE - time.monotonic()))

    sender = threading.Thread(target=send)
    sender.start()
    sender.join()
    numbers = "document.querySelector('[data-status]').textContent.replaceAll('\\u202f', '')"
    counted = f"(({numbers}).match(/\\d+/g) || []).map(Number).reduce((sum, each) => sum + each, 0)"
    browser.wait_for(f"{counted} >= {sent}")
    text = str(browser.evaluate(numbers))
    found = re.fullmatch(r"Live\. (\d+) records shown, (\d+) records omitted because they came too fast\.", text)
    assert found is not None, text
    shown, omitted = map(int, found.groups())
    assert shown + omitted == sent
    assert shown > 200  # more than the page holds: it was updated again and again
    assert browser.evaluate("document.querySelectorAll('tbody').length") <= 200
    gaps = sorted(browser.evaluate("gaps"))
    print(f"\n{sent / SECONDS:,.0f} records/s: {shown:,} shown, {omitted:,} omitted; {len(gaps)} frames, "
          f"p50 {gaps[len(gaps) // 2]:.0f} ms, p99 {gaps[len(gaps) * 99 // 100]:.0f} ms")  # fmt: skip
    browser.open("about:blank")  # the live page would hold up the end of the console
