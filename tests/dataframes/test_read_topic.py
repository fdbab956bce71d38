"""`moldau.read_topic` returns exactly the records that a consumer sees, from a real server."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

pa = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install 'moldau[dataframes]')")

from moldau import read_topic  # noqa: E402
from moldau.dataframes import DecodeError, Progress, TopicReadError, UnknownTopicError  # noqa: E402
from moldau.testing import Broker  # noqa: E402
from moldau.testing.terminal import Terminal  # noqa: E402

DAY_MS = 24 * 3_600_000
START_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z


def create(broker: Broker, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    topic = f"orders-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))])[topic].result(120)
    return topic


def write(
    broker: Broker, topic: str, *values: bytes | None, config: Mapping[str, Any] | None = None, **more: Any
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **(config or {})})
    for value in values:
        producer.produce(topic, value, **{"partition": 0, **more})
    assert producer.flush(60) == 0


def write_transactions(broker: Broker, topic: str) -> None:
    """Offsets 0-1 committed, 2 marker, 3-4 aborted, 5 marker, 6 committed, 7 marker."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for values, commit in (((b"a", b"b"), True), ((b"x", b"y"), False), ((b"c",), True)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


@pytest.fixture
def address(kafka: Broker) -> str:
    return kafka.bootstrap_servers


def test_all_fields_of_records_are_columns(kafka: Broker, address: str) -> None:
    topic = create(kafka)
    write(kafka, topic, b"\x00\xff", key=b"k", timestamp=START_MS, headers=[("trace", b"1"), ("trace", None)])
    write(kafka, topic, None, timestamp=START_MS + 1)

    table = read_topic(topic, address).to_arrow()

    assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert table.to_pylist() == [
        {
            "partition": 0,
            "offset": 0,
            "timestamp": datetime.fromtimestamp(START_MS / 1000, UTC),
            "key": b"k",
            "value": b"\x00\xff",
            "headers": [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}],
        },
        {
            "partition": 0,
            "offset": 1,
            "timestamp": datetime.fromtimestamp((START_MS + 1) / 1000, UTC),
            "key": None,
            "value": None,
            "headers": [],
        },
    ]
    assert "headers" not in read_topic(topic, address, headers=False).to_arrow().column_names


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_of_several_partitions_are_read_in_batches(kafka: Broker, address: str, codec: str) -> None:
    topic = create(kafka, partitions=3)
    for partition in range(3):
        values = [b"%d" % number for number in range(2_000)]
        write(kafka, topic, *values, config={"compression.type": codec}, partition=partition)
    seen: list[Progress] = []

    batches = list(read_topic(topic, address, value="utf8", progress=seen.append).iter_batches(batch_rows=999))

    assert [len(batch) for batch in batches] == [999] * 6 + [6]
    rows = sorted((row["partition"], row["offset"], row["value"]) for batch in batches for row in batch.to_pylist())
    assert rows == [(partition, number, str(number)) for partition in range(3) for number in range(2_000)]
    assert seen[-1] == Progress(6_000, 6_000, 6_000)


def test_transactions_are_read_as_the_isolation_level_says(kafka: Broker, address: str) -> None:
    topic = create(kafka)
    write_transactions(kafka, topic)

    committed = read_topic(topic, address).to_arrow()
    uncommitted = read_topic(topic, address, isolation_level="read_uncommitted").to_arrow()

    assert committed["offset"].to_pylist() == [0, 1, 6]
    assert uncommitted["value"].to_pylist() == [b"a", b"b", b"x", b"y", b"c"]


def test_records_of_an_open_transaction_are_not_awaited(kafka: Broker, address: str) -> None:
    topic = create(kafka)
    write(kafka, topic, b"before")
    producer = Producer({"bootstrap.servers": address, "transactional.id": "open"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(60) == 0

    assert read_topic(topic, address).to_arrow()["value"].to_pylist() == [b"before"]
    producer.abort_transaction()


def test_offsets_without_records_at_the_start_and_the_end_are_passed(kafka: Broker, address: str) -> None:
    topic = create(kafka, config={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    for round_ in range(3):
        for key in (b"a", b"b"):
            write(kafka, topic, b"%d" % round_, key=key)
    kafka.compact(topic)
    write_transactions_end = create(kafka)
    write_transactions(kafka, write_transactions_end)

    compacted = read_topic(topic, address, key="utf8", value="utf8").to_arrow()
    before_marker = read_topic(write_transactions_end, address, start=3, end=6).to_arrow()

    assert compacted.select(["offset", "key", "value"]).to_pylist() == [
        {"offset": 4, "key": "a", "value": "2"},
        {"offset": 5, "key": "b", "value": "2"},
    ]
    assert len(before_marker) == 0


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        ({"start": 7}, [7, 8, 9]),
        ({"start": -2}, [8, 9]),
        ({"start": -100, "end": 2}, [0, 1]),
        ({"start": "latest"}, []),
        ({"start": 5, "end": 3}, []),
        ({"start": {0: 2}, "end": {0: 4}}, [2, 3]),
        ({"start": "2026-02-01T12:00:00Z", "end": datetime(2026, 2, 3, 11, tzinfo=UTC)}, [1, 2]),
        ({"start": "2027-01-01"}, []),
        ({"limit": 4}, [0, 1, 2, 3]),
        ({"limit": 0}, []),
    ],
)
def test_start_end_and_limit_select_records(
    kafka: Broker, address: str, arguments: dict[str, Any], offsets: list[int]
) -> None:
    topic = create(kafka)
    for day in range(10):
        write(kafka, topic, b"", timestamp=START_MS + day * DAY_MS)

    assert read_topic(topic, address, **arguments).to_arrow()["offset"].to_pylist() == offsets


def test_a_range_is_fixed_when_it_is_created_and_can_be_read_again(kafka: Broker, address: str) -> None:
    topic = create(kafka, partitions=2)
    write(kafka, topic, b"1", b"2")
    found = read_topic(topic, address, partitions=[0])
    write(kafka, topic, b"3")

    assert found.offsets == {0: (0, 2)}
    assert found.to_arrow().num_rows == found.to_arrow().num_rows == 2


def test_json_is_inferred_over_all_records_or_has_the_given_schema(kafka: Broker, address: str) -> None:
    topic = create(kafka)
    write(kafka, topic, b'{"id": 1, "price": 2}', None, b'{"id": 2, "price": 2.5, "note": "\\u010d"}')
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2))])

    inferred = read_topic(topic, address, value="json").to_arrow()
    given = read_topic(topic, address, value="json", value_type=pa.schema([("id", pa.int32())])).to_arrow()
    by_function = read_topic(topic, address, value=lambda value: len(value), value_type=pa.int16()).to_arrow()

    assert inferred["value"].to_pylist() == [
        {"id": 1, "price": 2.0, "note": None},
        None,
        {"id": 2, "price": 2.5, "note": "č"},
    ]
    assert given["value"].to_pylist() == [{"id": 1}, None, {"id": 2}]
    assert by_function["value"].to_pylist()[0] == 21
    assert by_function.schema.field("value").type == pa.int16()
    with pytest.raises(DecodeError, match="offset 0 does not match the type"):
        read_topic(topic, address, value="json", value_type=schema.field("id").type).to_arrow()


def test_inferred_types_of_batches_follow_the_first_batch(kafka: Broker, address: str) -> None:
    topic = create(kafka)
    write(kafka, topic, b'{"a": 1.5, "b": "x"}', b'{"a": 2}', b'{"c": 3}')

    batches = read_topic(topic, address, value="json").iter_batches(batch_rows=1)

    assert next(batches)["value"].to_pylist() == [{"a": 1.5, "b": "x"}]
    assert next(batches)["value"].to_pylist() == [{"a": 2.0, "b": None}]
    with pytest.raises(DecodeError, match="value_type"):
        next(batches)
    assert read_topic(topic, address, value="json").to_arrow()["value"][2].as_py() == {"a": None, "b": None, "c": 3}


@pytest.mark.parametrize(
    ("decoder", "values", "message"),
    [
        ("utf8", (b"ok", b"\xff"), r"partition 0, offset 1: 'utf-8' codec.*it is b'\\xff'"),
        ("json", (b"1", b"{", b"2"), "partition 0, offset 1: Expecting property name"),
        ("json", (b'{"a": 1}', b'{"a": 1}', b'{"a": "x"}'), "offset 2 does not match those before it"),
        ("json", (b"1", b"%d" % (1 << 70)), "offset 1 does not match"),
    ],
)
def test_a_value_that_cannot_be_decoded_is_named(
    kafka: Broker, address: str, decoder: Any, values: tuple[bytes, ...], message: str
) -> None:
    topic = create(kafka)
    write(kafka, topic, *values)

    with pytest.raises(DecodeError, match=message):
        read_topic(topic, address, value=decoder).to_arrow()


def test_an_empty_topic_is_a_table_without_rows_with_all_columns(kafka: Broker, address: str) -> None:
    topic = create(kafka, partitions=2)

    found = read_topic(topic, address, value="utf8")

    assert list(found.iter_batches()) == []
    assert found.to_arrow().num_rows == 0
    assert found.to_arrow().column_names == ["partition", "offset", "timestamp", "key", "value", "headers"]


def test_pandas_and_polars_have_the_same_rows(kafka: Broker, address: str) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    pytest.importorskip("polars", reason="needs polars")
    topic = create(kafka)
    write(kafka, topic, b'{"amount": 5}', b'{"amount": 7}')
    found = read_topic(topic, address, value="json")

    pandas = found.to_pandas()
    polars = found.to_polars()

    assert [value["amount"] for value in pandas["value"]] == [5, 7]
    assert str(pandas["timestamp"].dtype) == "datetime64[ms, UTC]"
    assert polars.unnest("value")["amount"].sum() == 12
    assert polars["offset"].to_list() == [0, 1]


def test_what_cannot_be_read_has_a_clear_error(kafka: Broker, address: str) -> None:
    topic = create(kafka)

    with pytest.raises(UnknownTopicError, match="topic nowhere does not exist"):
        read_topic("nowhere", address)
    with pytest.raises(UnknownTopicError, match="has no partition 5, only 0"):
        read_topic(topic, address, partitions=[0, 5])
    with pytest.raises(TopicReadError, match=r"start=3 is out of range: .* the offsets 0 to 0"):
        read_topic(topic, address, start=3)
    with pytest.raises(TopicReadError, match=r"no response from 127.0.0.1:1"):
        read_topic(topic, "127.0.0.1:1", timeout_s=0.5)
    invalid: list[tuple[dict[str, Any], str]] = [
        ({"start": "noon"}, "start is 'noon'"),
        ({"value": "xml"}, "the decoder of the value is 'xml'"),
        ({"limit": -1}, "limit is -1"),
        ({"isolation_level": "all"}, "isolation_level is 'all'"),
        ({"end": {3: 1}}, "end has no position for partition 0"),
        ({"end": True}, "end is True"),
        ({"limit": "2"}, "limit is '2'"),
        ({"partitions": 0}, r"must be a list such as \[0\]"),
        ({"config": {"no.such": 1}}, 'No such configuration property: "no.such"'),
    ]
    for arguments, message in invalid:
        with pytest.raises(ValueError, match=message):
            read_topic(topic, address, **arguments)


@pytest.mark.parametrize("name", ["", None, ["orders"]])
def test_the_name_of_a_topic_is_a_text(name: Any) -> None:
    with pytest.raises(ValueError, match="it must be the name of a topic"):
        read_topic(name)


def test_a_server_that_does_not_respond_is_explained_once() -> None:
    program = "import moldau; moldau.read_topic('orders', '127.0.0.1:1', timeout_s=0.5)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("Connection refused") == 1
    assert ended.stderr.splitlines()[0].startswith("Traceback")


def test_an_unknown_topic_is_not_created(kafka: Broker, address: str) -> None:
    with pytest.raises(UnknownTopicError):
        read_topic("nowhere", address)

    assert "nowhere" not in AdminClient({"bootstrap.servers": address}).list_topics(timeout=120).topics


def test_records_that_were_deleted_in_the_meantime_are_an_error(kafka: Broker, address: str) -> None:
    topic = create(kafka)
    write(kafka, topic, *[b"x"] * 10)
    found = read_topic(topic, address)
    kafka.trim(topic, 0, 5)

    with pytest.raises(TopicReadError, match="deleted before they were read"):
        found.to_arrow()
    assert read_topic(topic, address).to_arrow()["offset"].to_pylist() == [5, 6, 7, 8, 9]


def test_a_secured_topic_needs_only_the_acl_for_reading_it() -> None:
    users = {"writer": "w-secret", "reader": "r-secret", "other": "o-secret"}
    acls = ["writer all topic *", "reader read topic orders"]
    with Broker(users=users, acls=acls) as broker:
        admin = AdminClient(broker.client_config("writer"))
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(120)
        producer = Producer(broker.client_config("writer"))
        producer.produce("orders", b"1")
        assert producer.flush(60) == 0

        found = read_topic("orders", broker.bootstrap_servers, config=broker.client_config("reader"))
        assert found.to_arrow()["value"].to_pylist() == [b"1"]
        with pytest.raises(TopicReadError, match="orders"):
            read_topic("orders", broker.bootstrap_servers, config=broker.client_config("other")).to_arrow()


def test_a_server_starts_without_the_packages_of_data_frames() -> None:
    program = "import moldau, moldau.server.main, sys; print(sorted({'pyarrow', 'confluent_kafka'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)

    assert done.stdout.strip() == "[]"
    with pytest.raises(ImportError, match=r"pip install 'moldau\[dataframes\]'"):
        _without("pyarrow")


def _without(package: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        read_topic("orders", "localhost:9092")


# -- the progress bar --------------------------------------------------------------------------------------------------

READ: str = """
import sys
import moldau
from moldau.dataframes import progress
progress.SHOWN_AFTER_S = float(sys.argv[3])
found = moldau.read_topic(sys.argv[1], sys.argv[2], value="utf8", progress={"None": None, "True": True}[sys.argv[4]])
print(sum(len(batch) for batch in found.iter_batches()) if sys.argv[5] == "batches" else len(found.to_arrow()))
"""


def read_on_a_terminal(topic: str, address: str, *, after_s: float, progress: str, method: str) -> tuple[str, str]:
    """What a program prints to its standard output, which is a pipe, and draws on the terminal."""
    command = [sys.executable, "-c", READ, topic, address, str(after_s), progress, method]
    with Terminal(command, stdout=subprocess.PIPE) as terminal:
        assert terminal.process.stdout is not None
        printed = terminal.process.stdout.read().decode()
        assert terminal.end() == 0, terminal.text
        return printed, terminal.text


@pytest.mark.parametrize(("progress", "method"), [("None", "table"), ("True", "batches")])
def test_a_long_read_shows_a_bar_on_a_terminal_and_removes_it(
    kafka: Broker, address: str, progress: str, method: str
) -> None:
    topic = create(kafka)
    write(kafka, topic, *[b"x"] * 1_234)
    printed, drawn = read_on_a_terminal(topic, address, after_s=0, progress=progress, method=method)
    assert printed == "1234\n"
    assert topic[:20] in drawn
    assert "1,234 records" in drawn
    assert "100%" in drawn
    assert drawn.rindex("\x1b[2K") > drawn.rindex("records"), "the bar is erased"


@pytest.mark.parametrize(
    ("after_s", "progress", "method"), [(3600, "True", "table"), (0, "None", "batches")], ids=["short", "batches"]
)
def test_no_bar_for_a_short_read_and_unasked_between_batches(
    kafka: Broker, address: str, after_s: float, progress: str, method: str
) -> None:
    topic = create(kafka)
    write(kafka, topic, b"x")
    assert read_on_a_terminal(topic, address, after_s=after_s, progress=progress, method=method) == ("1\n", "")


def test_no_bar_without_a_terminal(
    kafka: Broker, address: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.dataframes.progress.SHOWN_AFTER_S", 0.0)
    topic = create(kafka)
    write(kafka, topic, b"x")
    assert len(read_topic(topic, address, progress=True).to_arrow()) == 1
    assert capfd.readouterr() == ("", "")
