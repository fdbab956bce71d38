"""The Spark session and the server of these tests.

The session is that of the fixtures we ship, one for all tests. pyspark is not installed by the test extra (it is
450 MB): ``tox -e spark`` brings the version that is tested.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from moldau.compat_tests.client import Client
from moldau.compat_tests.clients import open_client
from moldau.compat_tests.requirements import missing, require_program
from moldau.compat_tests.transaction_server import markers_after_death  # noqa: F401 - a fixture of these tests
from moldau.spark_integration.fixtures import run_until, spark  # noqa: F401 - the fixtures of these tests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def spark_conf() -> Mapping[str, str]:
    """The settings of the session are asked for before it starts: the time to say what it needs."""
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark", "pip install pyspark==4.0.0, or run `tox -e spark`")
    require_program("java")
    return {}


@pytest.fixture
def client(bootstrap_servers: str) -> Iterator[Client]:
    """A client that is not Spark, to make topics and to look at what Spark did."""
    with open_client("confluent-kafka", bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def make_topic(client: Client) -> MakeTopic:
    """``make_topic(partitions, configs) -> name``: a new topic under a name that no other test has."""

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        topic = f"spark-{uuid4().hex[:12]}"
        client.create_topic(topic, partitions, configs)
        return topic

    return make


@pytest.fixture
def old_offset_fetching(request: pytest.FixtureRequest) -> Iterator[None]:
    """The driver asks for partitions and offsets with a consumer in a group, where it now has an admin client."""
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    session: SparkSession = request.getfixturevalue("spark")
    session.conf.set(setting, "true")
    yield
    session.conf.unset(setting)
