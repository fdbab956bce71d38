"""The Spark session and the server of these tests.

One session for all of them, small enough for a laptop: 700 MB of heap, two threads, no web interface. pyspark is not
installed by the test extra (it is 450 MB): ``tox -e spark`` brings the version that is tested.
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
from moldau.spark_integration import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of ``moldau.spark_integration.session``; its files go to a temporary folder."""
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark", "pip install pyspark==4.0.0, or run `tox -e spark`")
    require_program("java")
    folder = tmp_path_factory.mktemp("spark")
    with session("moldau tests", {**SPARK_CONF, "spark.sql.warehouse.dir": str(folder)}) as running:
        # Spark keeps its producers, and they would complain of a stopped server after pytest's last line.
        running.sparkContext.setLogLevel("ERROR")
        yield running


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
