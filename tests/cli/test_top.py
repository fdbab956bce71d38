"""``moldau top``: what it computes, what it draws, and how it leaves a terminal."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from rich.cells import cell_len
from rich.console import Console

from moldau.cli.group_client import TopicPartition
from moldau.cli.top.endpoint import Address, Endpoint, Scrapes
from moldau.cli.top.exposition import Scrape, ScrapeError, Software, parse
from moldau.cli.top.keyboard import Keyboard
from moldau.cli.top.report import Report, as_json, report
from moldau.cli.top.sampling import GroupSample, MemberSample, Sample, TopicSample
from moldau.cli.top.screen import CLIENTS, GROUPS, TOPICS, VIEWS, State, draw, rows_of
from moldau.testing import Broker
from moldau.testing.terminal import Terminal
from moldau.testing.waiting import wait_until

from .conftest import Run

STRIMZI = r"""
# TYPE kafka_server_brokertopicmetrics_bytesin_total counter
kafka_server_brokertopicmetrics_bytesin_total 1500.0
kafka_server_brokertopicmetrics_bytesin_total{topic="orders",} 1000.0
kafka_server_brokertopicmetrics_failedproducerequests_total{topic="orders",} 2
kafka_server_brokertopicmetrics_failedfetchrequests_total{topic="orders",} 3
kafka_server_brokertopicmetrics_bytesin_oneminuterate{topic="orders",} 77
kafka_network_requestmetrics_requests_total{request="Produce",version="11",} 7.0 1700000000000
kafka_network_requestmetrics_requests_total{request="Produce",version="9",} 1.0
kafka_network_requestmetrics_requests_total{request="Fetch",version="17",} 5
kafka_network_requestmetrics_requests_total{request="FetchConsumer",version="17",} 5
kafka_network_requestmetrics_errors_total{request="Produce",error="NONE",} 8
kafka_network_requestmetrics_errors_total{request="Produce",error="NOT_LEADER_OR_FOLLOWER",} 2
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99",} 12.5
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.50",} NaN
kafka_network_requestmetrics_totaltimems_count_total{request="Produce",} 8
kafka_server_socket_server_metrics_connections_software{clientSoftwareName="a \"b\"\\",clientSoftwareVersion="1"} 3
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent 0.9
kafka_network_socketserver_networkprocessoravgidle_percent 0.8
kafka_broken{ 1
"""


def topic(partitions: int = 1, size: int | None = None, *, is_internal: bool = False) -> TopicSample:
    return TopicSample(is_internal, partitions, 0, 0, size)


def sample(
    taken_s: float,
    *,
    topics: dict[str, TopicSample] | None = None,
    ends: dict[tuple[str, int], int] | None = None,
    groups: dict[str, GroupSample] | None = None,
    scrapes: dict[Address, Scrapes] | None = None,
    missing: list[str] | None = None,
) -> Sample:
    return Sample(
        taken_s, 1_700_000_000_000, "id", 1, 1, topics or {}, ends or {}, groups or {}, 0, scrapes or {}, missing or []
    )


def group(committed: int | None, state: str = "Stable") -> GroupSample:
    offsets = None if committed is None else {TopicPartition("orders", 0): committed}
    return GroupSample("classic", state, [MemberSample("reader", "10.0.0.1", 1)], offsets)


def scrape(taken_s: float, bytes_in: int) -> Scrape:
    found = Scrape(taken_s)
    found.topics["bytes_in", "orders"] = found.topics["bytes_in", ""] = bytes_in
    found.requests["Produce"] = bytes_in
    return found


def lines_of(found: Report | None, state: State | None = None, *, width: int = 120, height: int = 40) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, markup=False, emoji=False, highlight=False)
    picture = draw(
        found, state or State(), width=width, height=height, server="localhost:9092", interval_s=2, problem=None
    )
    console.print(picture)
    return out.getvalue().splitlines()


# Metrics


def test_metrics_with_strimzis_names_are_read() -> None:
    found = parse(STRIMZI, 0)
    assert found.topics["bytes_in", ""] == 1500
    assert found.topics["bytes_in", "orders"] == 1000
    assert found.topics["failed_requests", "orders"] == 5
    assert found.requests == {"Produce": 8, "Fetch": 5}
    assert found.errors == {"Produce": 2}
    assert found.times_ms == {("Produce", "total", "0.99"): 12.5}
    assert found.software == {Software('a "b"\\', "1"): 3}
    assert found.idle == 0.8


@pytest.mark.parametrize("suffix", ["persec", "persec_total"])
def test_rates_have_the_names_of_the_other_dialects_too(suffix: str) -> None:
    found = parse(f'kafka_server_brokertopicmetrics_bytesout{suffix}{{topic="t"}} 5\n', 0)
    assert found.topics["bytes_out", "t"] == 5


@pytest.mark.parametrize("text", ["", "<html>", "process_cpu_seconds_total 4\n", "kafka_brokers 1\n"])
def test_a_text_without_metrics_of_a_broker_is_an_error(text: str) -> None:
    with pytest.raises(ScrapeError, match="is it the address of a metrics listener"):
        parse(text, 0)


@contextmanager
def http_server(respond: Callable[[], tuple[int, str]]) -> Iterator[Address]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = respond()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Address("127.0.0.1", server.server_port)
        finally:
            server.shutdown()
            thread.join()


def test_an_endpoint_keeps_two_different_scrapes_and_names_its_problem() -> None:
    answers = [(200, STRIMZI), (200, STRIMZI), (200, STRIMZI + "\n"), (404, "")]
    with http_server(lambda: answers.pop(0)) as address:
        endpoint = Endpoint(address)
        assert endpoint.problem() == f"no metrics from {address} yet"
        endpoint.read(60)
        first = endpoint.scrapes
        assert first is not None
        assert first.before is None
        endpoint.read(60)
        assert endpoint.scrapes is first
        endpoint.read(60)
        assert endpoint.scrapes is not None
        assert endpoint.scrapes.before is first.now
        assert endpoint.problem() is None
        endpoint.read(60)
        assert endpoint.scrapes is None
        assert endpoint.problem() == f"no metrics from {address}: the response to /metrics is 404 Not Found"


def test_a_scrape_that_takes_long_belongs_to_a_later_sample() -> None:
    released = threading.Event()

    def respond() -> tuple[int, str]:
        released.wait(60)
        return 200, STRIMZI

    with http_server(respond) as address:
        endpoint = Endpoint(address)
        endpoint.read(0)
        assert endpoint.scrapes is None
        released.set()
        endpoint.read(60)
        assert endpoint.scrapes is not None


# Rates


def test_rates_are_changes_per_second_between_two_samples() -> None:
    before = sample(10, topics={"orders": topic()}, ends={("orders", 0): 100}, groups={"billing": group(40)})
    now = sample(
        12,
        topics={"orders": topic(), "new": topic()},
        ends={("orders", 0): 120, ("new", 0): 7},
        groups={"billing": group(100), "later": group(0)},
        scrapes={Address("h", 1): Scrapes(scrape(8, 1000), scrape(12, 5000))},
    )
    found = report(before, now)
    orders, new = found.topics
    assert (orders.records, orders.bytes_in, orders.bytes_out) == (10, 1000, 0)
    assert new.records == 0  # its first records are older than the sample
    assert (found.totals.records, found.totals.bytes_in, found.totals.requests) == (10, 1000, 1000)
    billing, later = found.groups
    assert (billing.lag, billing.lag_change, billing.records) == (20, -20, 30)
    assert billing.catches_up_s == 1
    assert (later.lag, later.lag_change, later.catches_up_s) == (120, None, None)


def test_rates_are_unknown_at_the_first_sample_without_metrics_and_after_a_reset() -> None:
    now = sample(12, topics={"orders": topic()}, ends={("orders", 0): 5}, groups={"billing": group(3)})
    first = report(None, now)
    assert (first.seconds, first.totals.records, first.topics[0].records, first.groups[0].lag_change) == (None,) * 4
    assert (first.topics[0].bytes_in, first.totals.requests, first.groups[0].lag) == (None, None, 2)
    reset = {Address("h", 1): Scrapes(scrape(8, 1000), scrape(12, 10))}
    assert report(now, now._replace(taken_s=13, scrapes=reset)).topics[0].bytes_in is None


def test_a_broker_that_was_restarted_does_not_hide_the_rates_of_the_others() -> None:
    scrapes = {
        Address("h", 1): Scrapes(scrape(8, 1000), scrape(12, 10)),
        Address("h", 2): Scrapes(scrape(8, 0), scrape(12, 400)),
        Address("h", 3): Scrapes(None, scrape(12, 9999)),
    }
    assert report(None, sample(12, scrapes=scrapes)).totals.bytes_in == 100


def test_a_group_without_offsets_or_with_offsets_of_a_deleted_topic_has_no_lag() -> None:
    found = report(None, sample(1, groups={"a": group(None), "b": group(5)}))
    assert [each.lag for each in found.groups] == [None, None]


def test_the_report_is_json() -> None:
    found = json.loads(json.dumps(as_json(report(None, sample(1, topics={"t": topic()}, groups={"g": group(1)})))))
    assert found["time"] == "2023-11-14T22:13:20.000+00:00"
    assert found["topics"][0]["topic"] == "t"
    assert found["clients"][0]["client"] == "reader"


# The screen


def test_tables_are_sorted_by_the_selected_column_with_unknown_values_last() -> None:
    topics = {"a": topic(3, 10), "b": topic(1, None), "c": topic(2, 30), "_x": topic(9, 9, is_internal=True)}
    found = report(None, sample(1, topics=topics))
    state = State()
    assert [row.topic for row in rows_of(TOPICS, found, state)] == ["a", "b", "c"]
    for _ in range(3):
        state.press(">")
    assert TOPICS.columns[state.sort[0]].title == "size"
    assert [row.topic for row in rows_of(TOPICS, found, state)] == ["c", "a", "b"]
    state.press("r")
    state.press("i")
    assert [row.topic for row in rows_of(TOPICS, found, state)] == ["_x", "a", "c", "b"]
    state.press("\t")
    state.press("left")
    assert GROUPS.columns[state.sort[1]].title == "group"
    assert not state.press("q")


def test_a_group_that_has_never_committed_for_its_records_is_first_by_lag() -> None:
    def reading(partition: int, committed: dict[TopicPartition, int] | None) -> GroupSample:
        assigned = frozenset({TopicPartition("orders", partition)})
        return GroupSample("classic", "Stable", [MemberSample("reader", "h", 1)], committed, assigned=assigned)

    groups = {
        "empty topic": reading(1, {}),
        "follows": reading(0, {TopicPartition("orders", 0): 10}),
        "lags": reading(0, {TopicPartition("orders", 0): 3}),
        "never committed": reading(0, {}),
        "unreadable": reading(0, None),
    }
    found = report(None, sample(1, ends={("orders", 0): 10, ("orders", 1): 0}, groups=groups))
    rows = rows_of(GROUPS, found)
    assert [(row.group, row.lag, row.uncommitted) for row in rows] == [
        ("never committed", None, 1),
        ("lags", 7, 0),
        ("follows", 0, 0),
        ("empty topic", None, 0),
        ("unreadable", None, None),
    ]
    state = State()
    state.selected = VIEWS.index(GROUPS)
    state.press("r")
    assert [row.group for row in rows_of(GROUPS, found, state)][:2] == ["follows", "lags"]


def test_a_name_cannot_control_the_terminal() -> None:
    evil = "\x1b[2Jx\r\n[red]y[/red]\x9b1m\u202e"
    members = [MemberSample(evil, evil, 1)]
    found = report(None, sample(1, groups={evil: GroupSample("classic", evil, members, None, evil)}, missing=[evil]))
    text = "\n".join(lines_of(found, width=200))
    assert not set(text) & set("\x1b\r\x9b\u202e")
    assert "[red]y[/red]" in text


@pytest.mark.parametrize("width", [1, 30, 80, 400])
@pytest.mark.parametrize("height", [1, 5, 12, 60])
def test_the_screen_fits_any_terminal(width: int, height: int) -> None:
    topics = {f"topic-with-a-rather-long-name-{number}": topic(number, number * 1000) for number in range(500)}
    groups = {f"group-{number}": group(number) for number in range(300)}
    found = report(None, sample(1, topics=topics, groups=groups, missing=["metrics are missing, and here is how"]))
    for key in ("0", "1", "2", "3", "4"):
        state = State()
        state.press(key)
        lines = lines_of(found, state, width=width, height=height)
        assert max(map(cell_len, lines)) <= width
        assert len(lines) <= max(height, 8)


def test_a_narrow_terminal_shows_fewer_columns_and_no_half_ones() -> None:
    found = report(None, sample(1, topics={"orders": topic(3, 1000)}))
    assert "not in sync" in lines_of(found, width=120)[3]
    narrow = lines_of(found, width=50)[3].rstrip()
    assert narrow.endswith("produce/s")
    assert "…" not in narrow


def test_a_long_name_leaves_the_numbers_as_they_are() -> None:
    long = "a-name-of-a-hundred-letters" * 4
    members = [MemberSample(long, "10.0.0.1", 3)]
    found = report(
        None,
        sample(
            1,
            topics={long: topic(3, 123_456_000_000)},
            ends={("orders", 0): 8_765},
            groups={long: GroupSample("classic", "Stable", members, {TopicPartition("orders", 0): 0})},
        ),
    )
    text = lines_of(found, width=100)
    titles, numbers = (next(line for line in text if line.startswith(start)) for start in ("topic ", "a-name"))
    assert "…" not in titles
    assert "123.5 GB" in numbers
    start = next(index for index, line in enumerate(text) if line.startswith("group "))
    assert "lag" in text[start]
    assert "8,765" in text[start + 1]
    start = next(index for index, line in enumerate(text) if line.startswith("client "))
    assert "partitions  connections" in text[start]
    assert max(map(cell_len, text)) <= 100
    assert long in "\n".join(lines_of(found, width=400))


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        (b"\x1b[H", "home"),
        (b"\x1bOF", "end of list"),
        (b"\x1b[1~", "home"),
        (b"\x1b[4~", "end of list"),
        (b"\x1b[7~", "home"),
        (b"\x1b[8~", "end of list"),
        (b"\x1b[5~", "page up"),
        (b"\x1b[15~", None),
    ],
)
def test_keys_have_the_codes_of_many_terminals(monkeypatch: pytest.MonkeyPatch, typed: bytes, key: str | None) -> None:
    screen, terminal = os.openpty()
    try:
        with os.fdopen(os.dup(terminal)) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            with Keyboard() as keyboard:
                os.write(screen, typed)
                assert keyboard.wait(60) == ([] if key is None else [key])
    finally:
        os.close(screen)
        os.close(terminal)


def test_one_table_alone_scrolls_to_its_last_row_and_not_further() -> None:
    found = report(None, sample(1, topics={f"t{number:03}": topic() for number in range(100)}))
    state = State()
    state.press("1")
    state.press("end of list")
    lines = lines_of(found, state, height=20)
    assert any(line.startswith("t099") for line in lines)
    assert state.first_row == 100 - (20 - 2 - 2 - 1)
    state.press("page up", page=5)
    assert state.first_row == 100 - (20 - 2 - 2 - 1) - 5
    state.press("home")
    assert any(line.startswith("t000") for line in lines_of(found, state, height=20))


def test_missing_metrics_are_explained_where_they_would_be() -> None:
    found = report(None, sample(1, missing=["start Moldau with --metrics"]))
    text = "\n".join(lines_of(found))
    assert "Requests and their durations come from metrics, which are missing" in text
    assert "! start Moldau with --metrics" in text


def test_each_key_of_a_table_is_its_position() -> None:
    assert [view.title for view in VIEWS] == ["Topics", "Groups", "Clients", "Requests"]
    state = State()
    state.press("3")
    assert VIEWS[state.selected] is CLIENTS


# The command


def test_once_as_json_has_topics_and_the_lag_of_groups(ask: Run, new_topic: Callable[..., str]) -> None:
    name = new_topic(2)
    group_id = f"{name}-readers"
    assert ask("groups", "reset", group_id, "--topic", name, "--to-earliest", "--execute").code == 0
    assert ask("produce", name, input=b"a\nb\n").code == 0
    found = ask("top", "--once", "--json", "--interval", "0.2").json()
    (row,) = [each for each in found["topics"] if each["topic"] == name]
    assert (row["partitions"], row["records"], row["without_leader"]) == (2, 0, 0)
    (lagging,) = [each for each in found["groups"] if each["group"] == group_id]
    assert (lagging["lag"], lagging["lag_change"], lagging["state"]) == (2, 0, "Empty")
    assert found["seconds"] >= 0.2


def test_once_prints_every_table_and_says_how_to_get_metrics(ask: Run, new_topic: Callable[..., str]) -> None:
    name = new_topic()
    found = ask("top", "--once", "--interval", "0.2", "--metrics", "127.0.0.1:1")
    assert found.code == 0
    assert name in found.text
    assert "Requests (0)" in found.text
    assert found.err == "Note: no metrics from 127.0.0.1:1: connection refused\n"


def test_metrics_are_found_through_the_settings_of_a_broker(run: Run, unused_port: int) -> None:
    with Broker(thread=True, memory=True, config={"moldau.metrics.listener": f"0.0.0.0:{unused_port}"}) as broker:
        arguments = ("top", "--once", "--json", "--interval", "0.2", "-b", broker.bootstrap_servers)
        found = run(*arguments).json()
    assert found["has_metrics"]
    assert found["missing"] == []
    assert "Metadata" in [each["request"] for each in found["requests"]]
    assert ("moldau", 2) in [(each["software"], each["connections"]) for each in found["clients"]]


def test_settings_that_the_user_may_not_read_are_not_called_missing(run: Run) -> None:
    config = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with Broker(config={**config, "super.users": "User:admin"}) as broker:
        found = run("top", "--once", "--json", "--interval", "0.2", "-b", broker.bootstrap_servers).json()
    (reason,) = found["missing"]
    assert "add an ACL for describe-configs on the cluster" in reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the output is not a terminal; use --once or --json"),
        (("--once", "--metrics", "host"), "'host' is not HOST:PORT"),
        (("--once", "--metrics", "http://host:1/metrics"), "is not HOST:PORT"),
        (("--once", "--interval", "0"), "0.0 is not in the range"),
        (("--once", "--interval", "nan"), "nan is not a number of seconds"),
    ],
)
def test_wrong_options_are_usage_errors(run: Run, arguments: tuple[str, ...], message: str) -> None:
    found = run("top", *arguments)
    assert found.code == 2
    assert message in found.err


def test_a_server_that_is_not_reachable_at_first_is_a_failure(run: Run, unused_port: int) -> None:
    found = run("top", "--once", "-b", f"127.0.0.1:{unused_port}")
    assert found.code == 1
    assert "connection refused" in found.err


# A terminal


def top(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "moldau", "top", "--interval", "0.2", *arguments]


def last_screen(terminal: Terminal) -> str:
    """What was drawn last."""
    return terminal.plain.rpartition("moldau top")[2]


def test_the_table_follows_keys_the_size_and_a_broker_that_returns(run: Run) -> None:
    with Broker() as broker:
        for name in ("first-topic", "second-topic"):
            assert run("topics", "create", name, "-b", broker.bootstrap_servers).code == 0
        with Terminal(top("-b", broker.bootstrap_servers), columns=100, lines=30) as terminal:
            wait_until(lambda: "first-topic" in last_screen(terminal), state=lambda: terminal.text)
            wait_until(lambda: "0 records/s" in last_screen(terminal))
            assert "Requests and their durations come from metrics" in terminal.plain
            terminal.press("2")
            wait_until(lambda: "No groups." in last_screen(terminal) and "first" not in last_screen(terminal))
            terminal.press("0")
            terminal.resize(40, 12)
            terminal.process.send_signal(signal.SIGWINCH)  # the helper's terminal has no session
            wait_until(lambda: "produce/s" not in last_screen(terminal) and "first" in last_screen(terminal))
            broker.kill()
            wait_until(lambda: "! cannot reach" in last_screen(terminal))
            broker.start()
            wait_until(lambda: "! cannot reach" not in last_screen(terminal))
            terminal.press("q")
            assert terminal.end() == 0
            assert terminal.text.endswith("\x1b[?25h\x1b[?1049l")


def test_the_settings_of_the_terminal_are_those_of_before(bootstrap_servers: str) -> None:
    command = " ".join([*top("-b", bootstrap_servers)])
    with Terminal(["sh", "-c", f"stty -g; {command}; stty -g"]) as terminal:
        wait_until(lambda: "q quit" in terminal.plain, state=lambda: terminal.text)
        terminal.press("q")
        assert terminal.end() == 0
        before, _, rest = terminal.text.partition("\r\n")
        assert rest.rpartition("\x1b[?1049l")[2] == f"{before}\r\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_trace_on_the_terminal(bootstrap_servers: str, number: int, code: int) -> None:
    with Terminal(top("-b", bootstrap_servers)) as terminal:
        wait_until(lambda: "q quit" in terminal.plain, state=lambda: terminal.text)
        os.kill(terminal.process.pid, number)
        assert terminal.end() == code
        assert terminal.text.endswith("\x1b[?25h\x1b[?1049l")
