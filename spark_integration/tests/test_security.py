"""Spark over SASL_SSL, with the settings of `Broker.client_config`: a batch and a stream of a user with ACLs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.testing import Broker

from .support import content, frame_of, load, multiset, read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.full

SOURCE, COPY, OTHER = "events-source", "events-copy", "others"
ACLS = (
    f"reader read topic {SOURCE}",
    f"reader write topic {COPY}",
    f"reader read topic {COPY}",
    f"writer write topic {SOURCE}",
    # Spark names a group for each query; with its current admin client it needs no group to find offsets.
    "reader read group spark-kafka- --prefix",
    "admin all cluster",
)


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    if request.config.getoption("bootstrap_server") or request.config.getoption("apache"):
        pytest.skip("starts its own broker of Moldau")
    users = {"reader": "secret-of-reader", "writer": "secret-of-writer", "admin": "secret-of-admin"}
    with Broker(tls=True, users=users, acls=ACLS) as started:
        admin = AdminClient(started.client_config("admin"))
        for created in admin.create_topics([NewTopic(name, 3, 1) for name in (SOURCE, COPY, OTHER)]).values():
            created.result(60)
        yield started
        assert "secret-of" not in started.log()


def options_of(broker: Broker, user: str, **more: str) -> Mapping[str, str]:
    return {**broker.client_config(user, client="spark", mechanism="SCRAM-SHA-512"), "includeHeaders": "true", **more}


def test_a_batch_is_written_and_a_stream_copies_it(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    written = content(500)
    frame_of(spark, written, partitions=3).write.format("kafka").options(
        **options_of(broker, "writer", topic=SOURCE)
    ).save()
    reading = options_of(broker, "reader", subscribe=SOURCE, startingOffsets="earliest")
    assert multiset(load(spark, reading)) == Counter(written)
    query = (
        read_stream(spark, {**reading, "maxOffsetsPerTrigger": "200"})
        .select("key", "value", "headers", "partition")
        .writeStream.format("kafka")
        .options(**options_of(broker, "reader", topic=COPY))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = load(spark, options_of(broker, "reader", subscribe=COPY, startingOffsets="earliest"))
    assert multiset(copied) == Counter(written)


def test_what_acls_refuse_fails_the_query(spark: SparkSession, broker: Broker) -> None:
    frame = frame_of(spark, content(3), partitions=3)
    with pytest.raises(Exception, match="TopicAuthorizationException"):
        frame.write.format("kafka").options(**options_of(broker, "writer", topic=OTHER)).save()
    with pytest.raises(Exception, match="TopicAuthorizationException"):
        load(spark, options_of(broker, "reader", subscribe=OTHER, startingOffsets="earliest")).collect()
