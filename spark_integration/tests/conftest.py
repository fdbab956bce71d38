"""The Spark session and the server of these tests.

The session is that of the fixtures in the package, one for all tests. The test extra does not install pyspark (450 MB);
``tox -e spark`` installs the tested version.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from moldau.compat_tests.transaction_server import markers_after_death  # noqa: F401 - a fixture of these tests
from moldau.spark_integration.fixtures import run_until, spark  # noqa: F401 - the fixtures of these tests
from moldau.testing.client import Client
from moldau.testing.clients import open_client
from moldau.testing.requirements import missing, require_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def spark_conf() -> Mapping[str, str]:
    """The settings of the session, requested before it starts. A missing pyspark is reported here."""
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark", "pip install pyspark==4.0.0, or run `tox -e spark`")
    require_program("java")
    return {}


@pytest.fixture
def client(bootstrap_servers: str) -> Iterator[Client]:
    """A client other than Spark, to create topics and to check the results."""
    with open_client("confluent-kafka", bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def make_topic(client: Client) -> MakeTopic:
    """``make_topic(partitions, configs) -> name``: a new topic with a unique name."""

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        topic = f"spark-{uuid4().hex[:12]}"
        client.create_topic(topic, partitions, configs)
        return topic

    return make


@pytest.fixture
def old_offset_fetching(request: pytest.FixtureRequest) -> Iterator[None]:
    """The driver fetches partitions and offsets with a consumer in a group, instead of the current admin client."""
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    session: SparkSession = request.getfixturevalue("spark")
    session.conf.set(setting, "true")
    yield
    session.conf.unset(setting)
