"""A real Prometheus with the shipped configuration: each query of the dashboards and of the alerts finds data.

Grafana is not needed: its variables are replaced here by what they stand for.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.testing import Broker
from moldau.testing.config_requests import CLIENT_METRICS, SET, alter
from moldau.testing.producer_load import ProducerLoad
from moldau.testing.requirements import require_program
from moldau.testing.topic_requests import create_topic
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
DASHBOARDS = sorted((FOLDER / "grafana" / "dashboards").glob("*.json"))
VARIABLES = {
    "$__rate_interval": "30s",
    "$instance": ".+",
    "$topic": ".+",
    "$consumergroup": ".+",
    "$request": ".+",
    "$client_id": ".+",
}
METRIC = re.compile(r"\b(?:up|(?:kafka|moldau|process)_\w+)\b")


class Query(NamedTuple):
    where: str
    expression: str
    labels: frozenset[str]
    """The labels that the legend, or a column of the table, shows."""


class Prometheus:
    """A running Prometheus. Values are those of ``/api/v1`` of its HTTP API."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as response:
            return json.load(response)["data"]

    def samples(self, expression: str) -> list[dict[str, str]]:
        """The labels of the samples that are numbers."""
        found = self.get("query", query=expression)["result"]
        return [sample["metric"] for sample in found if sample["value"][1] != "NaN"]

    def shows(self, query: Query) -> bool:
        samples = self.samples(query.expression)
        return bool(samples) and all(query.labels <= labels.keys() for labels in samples)


def dashboard(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def replaced(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, f"a variable is unknown here: {expression}"
    return expression


def queries(path: Path) -> Iterator[Query]:
    for panel in dashboard(path)["panels"]:
        columns = {
            label
            for transformation in panel.get("transformations", [])
            for label in transformation["options"]["renameByName"]
        } - {"Value"}
        for target in panel.get("targets", []):
            labels = columns | set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            yield Query(f"{path.name}: {panel['title']}", replaced(target["expr"]), frozenset(labels))


@contextmanager
def prometheus_of(target: str, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus with the shipped files that scrapes ``target``, each second."""
    program = require_program("prometheus")
    config = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    for shipped, here in ((": 5s", ": 1s"), ('["127.0.0.1:9404"]', f'["{target}"]')):
        assert shipped in config
        config = config.replace(shipped, here)
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    (folder / "alerts.yml").write_text((FOLDER / "alerts.yml").read_text(encoding="utf-8"), encoding="utf-8")
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)

    def address() -> str | None:
        text = log.read_text(encoding="utf-8")
        assert process.poll() is None, text
        found = re.search(r'msg="Listening on" address=(\S+)', text)
        return found[1] if found and "Server is ready to receive web requests" in text else None

    try:
        yield Prometheus(wait_until(address, "Prometheus is ready"))
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes a server with a producer, a group that reads, and a rejected request.

    Both clients push all their metrics (KIP-714).
    """
    require_program("prometheus")
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(config={"moldau.metrics.listener": "127.0.0.1:0"}))
        listener = re.search(r"Metrics at http://(\S+)/metrics", broker.log())
        assert listener is not None, broker.log()
        with WireClient(broker.bootstrap_servers) as wire:
            create_topic(broker.bootstrap_servers, "orders", partitions=3)
            assert alter(wire, CLIENT_METRICS, "all", ("metrics", SET, "*"), ("interval.ms", SET, "1000")) == "NONE"
            rejected = wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="unknown")], timeout_ms=1000), 6)
            assert rejected.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        load = stack.enter_context(ProducerLoad([broker.bootstrap_servers], "orders", 3))
        load.wait_for_more(range(3))
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        stack.callback(consumer.close)
        consumer.subscribe(["orders"])
        assert consumer.consume(3, timeout=60)
        consumer.commit(asynchronous=False)
        yield stack.enter_context(prometheus_of(listener[1], tmp_path_factory.mktemp("prometheus")))


@pytest.mark.parametrize("path", DASHBOARDS, ids=[path.stem for path in DASHBOARDS])
def test_each_query_of_a_dashboard_returns_data_with_the_labels_of_its_legend(
    prometheus: Prometheus, path: Path
) -> None:
    remaining = list(queries(path))
    assert len(remaining) >= 10

    def all_show_data() -> bool:
        remaining[:] = [query for query in remaining if not prometheus.shows(query)]
        return not remaining

    wait_until(all_show_data, "each query returns data", pause=0.5, state=lambda: remaining)


@pytest.mark.parametrize("path", DASHBOARDS, ids=[path.stem for path in DASHBOARDS])
def test_each_variable_of_a_dashboard_has_values(prometheus: Prometheus, path: Path) -> None:
    variables = [v for v in dashboard(path)["templating"]["list"] if v["type"] == "query"]
    assert {f"${variable['name']}" for variable in variables} <= VARIABLES.keys()
    for variable in variables:
        parsed = re.fullmatch(r"label_values\((\w+|{[^}]+}), (\w+)\)", variable["query"]["query"])
        assert parsed is not None, variable
        metric, label = parsed.groups()
        wait_until(lambda: prometheus.get(f"label/{label}/values", **{"match[]": metric}), f"values of {label}")  # noqa: B023


def test_the_alerts_are_evaluated_on_metrics_that_exist_and_do_not_fire(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]] | None:
        found = prometheus.get("rules")["groups"][0]["rules"]
        return found if all(rule["health"] != "unknown" for rule in found) else None

    for rule in wait_until(rules, "the alerts were evaluated"):
        assert rule["health"] == "ok", rule
        for metric in METRIC.findall(rule["query"]):
            assert wait_until(lambda: prometheus.samples(metric), metric)  # noqa: B023
        assert rule["state"] != "firing", rule


def test_a_query_of_an_unknown_metric_or_label_returns_no_data(prometheus: Prometheus) -> None:
    wait_until(lambda: prometheus.samples("up == 1"), "a scrape")
    assert not prometheus.shows(Query("", "kafka_unknown", frozenset()))
    assert not prometheus.shows(Query("", "up", frozenset({"unknown"})))


def test_the_provisioning_names_the_address_and_the_interval_of_prometheus() -> None:
    source = (FOLDER / "grafana" / "provisioning" / "datasources" / "prometheus.yml").read_text(encoding="utf-8")
    assert "url: http://127.0.0.1:9090\n" in source
    assert "timeInterval: 5s" in source
    assert "scrape_interval: 5s" in (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    uids = [dashboard(path)["uid"] for path in DASHBOARDS]
    assert len(set(uids)) == len(uids) == 4
