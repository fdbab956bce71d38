"""Every client reads the records of every other client, in every codec: the same bytes, offsets and times.

Compression libraries differ in framing (Java's snappy blocks, lz4 frames with and without linked blocks, zstd with and
without the size in the header), and a server that does not recompress delivers the frames of one client to the other.
All clients must read the same records as a raw fetch that is decoded by this project.
"""

from collections.abc import Callable

import pytest

from moldau.compat_tests.conftest import OpenClient
from moldau.protocol.records import iter_records
from moldau.testing.client import CODECS, Client, Feature, Received, Record
from moldau.testing.clients import CLIENT_NAMES
from moldau.testing.topic_requests import stored_batches

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

RECORDS = (
    Record(key=b"key", value=b"value", headers=(("header", b"1"), ("header", b"2"))),
    Record(key=None, value=b"no key"),
    Record(key=b"", value=b""),
    Record(key=b"tombstone", value=None),
    Record(key=b"\x00\xff\n", value=bytes(range(256)) * 40),
    *(Record(key=b"%d" % number, value=b"%d " % number * 50) for number in range(50)),
)

Written = Callable[[str, str], tuple[str, int, list[Received]]]


@pytest.fixture(scope="module")
def written(client_of: OpenClient, bootstrap_servers: str) -> Written:
    """``written(writer, codec)``: a topic and partition with the records, and the stored batches; written once."""
    done: dict[tuple[str, str], list[Received]] = {}
    topics: dict[str, str] = {}

    def write(writer: str, codec: str) -> tuple[str, int, list[Received]]:
        partition = CODECS.index(codec)
        if writer not in topics:
            client_of(writer)  # skips if the writer is missing, before a topic is created
            topics[writer] = f"matrix-{writer}-{id(topics):x}"
            client_of("kafka-python").create_topic(topics[writer], len(CODECS))
        topic = topics[writer]
        if (writer, codec) not in done:
            records = [Record(r.value, r.key, r.headers, None, partition) for r in RECORDS]
            client_of(writer).produce(topic, records, codec=codec, linger_ms=100)
            batches = stored_batches(bootstrap_servers, topic, partition)
            assert codec in {CODECS[batch.codec] for batch in batches}
            done[writer, codec] = [
                Received(
                    partition,
                    r.offset,
                    r.timestamp,
                    TIMESTAMP_TYPES[b.timestamp_type],
                    r.key,
                    r.value,
                    tuple(r.headers),
                )
                for b in batches
                for r in iter_records(b)
            ]
            assert [(r.key, r.value, r.headers) for r in done[writer, codec]] == [
                (r.key, r.value, r.headers) for r in RECORDS
            ]
        return topic, partition, done[writer, codec]

    return write


@pytest.mark.parametrize("reader", CLIENT_NAMES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENT_NAMES)
def test_every_client_reads_the_records_of_every_client(
    client_of: OpenClient, written: Written, writer: str, codec: str, reader: str
) -> None:
    topic, partition, stored = written(writer, codec)
    client = client_of(reader)
    assert _shown(client, client.read(topic, partition)) == _shown(client, stored)


def _shown(client: Client, records: list[Received]) -> list[tuple[object, ...]]:
    """The fields that this client can show."""
    with_type = Feature.TIMESTAMP_TYPE not in client.without
    return [
        (r.offset, r.timestamp_ms, r.timestamp_type if with_type else "", r.key, r.value, r.headers) for r in records
    ]
