"""Topics, pages of records, and single records, over HTTP."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import chain
from urllib.parse import urlsplit

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.records import Record

from .conftest import Console

Send = Callable[..., int]
NewTopic = Callable[..., str]


class _Page(HTMLParser):
    """The rows of records on a page, its links, and all elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: dict[str, str] = {}
        self.elements: list[str] = []
        self._link: str | None = None
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        if tag == "a":
            self._link = dict(attributes)["href"]

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._link is not None:
            self.links[data.strip()] = self._link
            self._link = None


ROW = re.compile(r'<a href="/topics/[^/"]+/(\d+)/(\d+)')


def places(html: str) -> list[tuple[int, int]]:
    """The partitions and offsets of the records of a page, in order."""
    return [(int(partition), int(offset)) for partition, offset in ROW.findall(html)]


def walk(console: Console, address: str, label: str) -> list[list[tuple[int, int]]]:
    """The records of a page and of those that its link leads to."""
    found = []
    while True:
        answer = console.get(address)
        assert answer.status == 200, answer.text
        found.append(places(answer.text))
        link = _Page(answer.text).links.get(label)
        if link is None:
            return found
        address = urlsplit(address).path + link


def numbered(count: int, start_ms: int = 1_700_000_000_000, step_ms: int = 10) -> list[Record]:
    return [Record(0, start_ms + step_ms * number, b"k%d" % number, b"v%d" % number) for number in range(count)]


def test_a_page_beyond_the_end_of_a_list_is_its_last_page(console: Console, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert f'href="/topics/{topic}"' in console.get(f"/topics?q={topic}&page=99").text
    for path in ("/topics?page=x", "/groups?page=-1"):
        assert console.get(path).status == 400


def test_a_topic_is_listed_with_its_offsets(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic(2)
    send(topic, numbered(5))
    page = console.get(f"/topics?q={topic}").text
    row = re.search(rf"<tr>\s*<th scope=\"row\"><a href=\"/topics/{topic}\">.*?</tr>", page, re.DOTALL)
    assert row is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row.group(), re.DOTALL)
    assert ">2</a>" in cells[0]
    assert cells[1:3] == ["1", "5"]
    assert cells[4].endswith(" B")
    assert "in sync" in cells[5]


def test_the_newest_records_are_first_and_the_link_leads_to_the_oldest(
    console: Console, new_topic: NewTopic, send: Send
) -> None:
    topic = new_topic()
    send(topic, numbered(45))
    send(topic, numbered(10, 1_700_000_001_000))
    pages = walk(console, f"/topics/{topic}?limit=20", "Older records")
    assert [len(page) for page in pages] == [20, 20, 15]
    assert list(chain(*pages)) == [(0, offset) for offset in reversed(range(55))]


def test_partitions_are_merged_by_time_in_both_directions(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic(3)
    for partition in range(3):
        send(topic, numbered(12, 1_700_000_000_000 + partition, 10), partition=partition)
    expected = [(partition, offset) for offset in range(12) for partition in range(3)]
    assert list(chain(*walk(console, f"/topics/{topic}?limit=7", "Older records"))) == expected[::-1]
    assert list(chain(*walk(console, f"/topics/{topic}?limit=7&at=beginning", "Later records"))) == expected


def test_one_partition_is_shown_from_an_offset_on(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic(2)
    send(topic, numbered(9), partition=1)
    assert places(console.get(f"/topics/{topic}?at=offset&offset=6&partition=1").text) == [(1, 6), (1, 7), (1, 8)]
    assert "no records from there on" in console.get(f"/topics/{topic}?at=offset&offset=9&partition=1").text


def test_records_are_shown_from_a_time_on(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic(2)
    send(topic, numbered(9), partition=0)
    assert places(console.get(f"/topics/{topic}?at=time&time=1700000000065").text) == [(0, 7), (0, 8)]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_compressed_batches_are_read(console: Console, new_topic: NewTopic, send: Send, codec: Codec) -> None:
    topic = new_topic()
    send(topic, numbered(5), codec=codec)
    page = console.get(f"/topics/{topic}").text
    assert places(page) == [(0, offset) for offset in (4, 3, 2, 1, 0)]
    assert ">v3<" in page


def test_a_page_of_large_records_is_complete(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    for _ in range(12):
        send(topic, [Record(0, 1_700_000_000_000, None, b"x" * 900_000)])
    pages = walk(console, f"/topics/{topic}?limit=10", "Older records")
    assert list(chain(*pages)) == [(0, offset) for offset in reversed(range(12))]
    first = console.get(f"/topics/{topic}?limit=10")
    assert len(first.body) < 50_000
    assert "900 kB" in first.text


def test_a_topic_without_records_says_how_to_send_one(console: Console, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    assert f"moldau produce {topic}" in console.get(f"/topics/{topic}").text


HOSTILE = b"</pre></td><script>document.title='owned'</script><img src=x onerror=alert(1)>\" onmouseover=\"x"


def test_everything_of_a_record_is_escaped(console: Console, new_topic: NewTopic, send: Send) -> None:
    topic = new_topic()
    header = HOSTILE.decode()
    send(topic, [Record(0, 1_700_000_000_000, HOSTILE, HOSTILE, [(header, HOSTILE)])])
    allowed = {"script": 2, "img": 0}
    for address in (f"/topics/{topic}", f"/topics/{topic}/0/0", f"/topics/{topic}/0/0?fragment=1"):
        page = _Page(console.get(address).text)
        assert page.elements.count("script") == (0 if "fragment" in address else allowed["script"])
        assert "img" not in page.elements
        assert "<script>document.title" in page.text


def test_a_record_has_a_page_with_its_batch_headers_and_bytes(
    console: Console, new_topic: NewTopic, send: Send
) -> None:
    topic = new_topic()
    value = b'{"id":1.0,"id":12345678901234567890123,"name":"\\ud83d"}'
    send(topic, [Record(0, 1_700_000_000_123, b"\x00\xff\x10", value, [("trace", b"abc"), ("none", None)])])
    page = _Page(console.get(f"/topics/{topic}/0/0").text).text
    # The text of numbers, repeated names and escapes is as it was sent.
    assert '{\n  "id": 1.0,\n  "id": 12345678901234567890123,\n  "name": "\\ud83d"\n}' in page
    assert "00000000  00 ff 10" in page
    assert "2023-11-14T22:13:20.123+00:00" in page
    assert "trace" in page
    assert console.get(f"/topics/{topic}/0/0?raw=value").body == value
    raw = console.get(f"/topics/{topic}/0/0?raw=key")
    assert raw.body == b"\x00\xff\x10"
    assert raw.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (gzip.compress(b'{"a": 1}'), "auto", "gzip, JSON"),
        (b'{"a": ', "JSON", "the bytes are not valid JSON"),
        (b"\x00\x00\x00\x00\x2aabc", "auto", "may have schema 42 of a registry"),
        (b"plain", "hex", "70 6c 61 69 6e"),
        (b"[" * 100_000, "auto", "["),
        (b"7" * 10_000, "auto", "7777"),
        (b"\xff\xfe", "text", "\ufffd\ufffd"),
    ],
    ids=["gzip", "broken JSON", "schema", "hex", "deep", "long number", "not UTF-8"],
)
def test_values_have_the_format_that_fits_or_was_chosen(
    console: Console, new_topic: NewTopic, send: Send, value: bytes, form: str, shown: str
) -> None:
    topic = new_topic()
    send(topic, [Record(0, 1_700_000_000_000, None, value)])
    assert shown in _Page(console.get(f"/topics/{topic}/0/0?format={form}").text).text
    assert console.get(f"/topics/{topic}?format={form}").status == 200


def test_markers_and_aborted_records_are_no_records_for_a_reader_of_committed_ones(
    console: Console, new_topic: NewTopic, bootstrap_servers: str
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    topic = new_topic()
    settings = {"bootstrap.servers": bootstrap_servers, "transactional.id": topic}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions()
    for commits in (True, False, True):
        producer.begin_transaction()
        producer.produce(topic, b"committed" if commits else b"aborted", partition=0)
        producer.flush()
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    # Offsets: record, marker, aborted record, marker, record, marker.
    assert places(console.get(f"/topics/{topic}").text) == [(0, 4), (0, 2), (0, 0)]
    assert places(console.get(f"/topics/{topic}?committed=1").text) == [(0, 4), (0, 0)]
    assert places(console.get(f"/topics/{topic}?committed=1&at=beginning").text) == [(0, 0), (0, 4)]
    missing = console.get(f"/topics/{topic}/0/1")
    assert missing.status == 404
    assert "transaction markers" in missing.text


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/topics/no-such-topic", 404, "the topic or partition does not exist"),
        ("/topics/{topic}?partition=7", 404, "no partition 7"),
        ("/topics/{topic}?partition=x", 400, "not a number"),
        ("/topics/{topic}?at=time&time=yesterday", 400, "neither milliseconds"),
        ("/topics/{topic}?cursor=nonsense", 400, "not offsets"),
        ("/topics/{topic}?format=xml", 400, "format=xml is unknown"),
        ("/topics/{topic}?at=end", 400, "at=end is unknown"),
        ("/topics/{topic}/0/99", 404, "no record at offset 99"),
        ("/nowhere", 404, "does not exist"),
    ],
)
def test_a_wrong_address_is_explained(console: Console, new_topic: NewTopic, path: str, status: int, text: str) -> None:
    answer = console.get(path.replace("{topic}", new_topic()))
    assert (answer.status, text in answer.text) == (status, True), answer.text
    assert 'class="problem"' in answer.text


def test_a_cluster_that_is_not_reachable_is_explained(new_console: Callable[..., Console], unused_port: int) -> None:
    console = new_console(f"127.0.0.1:{unused_port}")
    answer = console.get("/topics")
    assert answer.status == 502
    assert f"cannot reach 127.0.0.1:{unused_port}" in answer.text
    assert "Try again" in answer.text
