"""Programs of Python stream processors: each reads `{"n": N}` from one topic and writes `{"n": 2 * N}` to another.

``python -m moldau.compat_tests.processor_programs NAME ADDRESS SOURCE SINK FOLDER`` runs one. A program ends after the
existing records, or runs until it is stopped. Each uses its processor as the processor's documentation does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

RECORDS: Final = 100


def quix_streams(address: str, source: str, sink: str, folder: Path) -> None:
    """With state, and so with a changelog topic."""
    from quixstreams import Application

    app = Application(
        broker_address=address, consumer_group="quix", auto_offset_reset="earliest", state_dir=str(folder / "state")
    )
    rows = app.dataframe(app.topic(source, value_deserializer="json"))

    def double(value: dict[str, int], state: Any) -> dict[str, int]:
        state.set("seen", state.get("seen", 0) + 1)
        return {"n": 2 * value["n"]}

    rows.apply(double, stateful=True).to_topic(app.topic(sink, value_serializer="json"))
    app.run(count=RECORDS, timeout=120)


def faststream_aiokafka(address: str, source: str, sink: str, folder: Path) -> None:
    from faststream.kafka import KafkaBroker

    _faststream(KafkaBroker(address), source, sink)


def faststream_confluent(address: str, source: str, sink: str, folder: Path) -> None:
    from faststream.confluent import KafkaBroker

    _faststream(KafkaBroker(address), source, sink)


def _faststream(broker: Any, source: str, sink: str) -> None:
    from faststream import FastStream

    async def double(message: dict[str, int]) -> dict[str, int]:
        return {"n": 2 * message["n"]}

    subscriber = broker.subscriber(source, group_id="faststream", auto_offset_reset="earliest")
    subscriber(broker.publisher(sink)(double))
    asyncio.run(FastStream(broker).run())


def faust(address: str, source: str, sink: str, folder: Path) -> None:
    """With a table, and so with a changelog topic."""
    import faust as package

    app = package.App(
        "faust",
        broker=f"kafka://{address}",
        store="memory://",
        datadir=str(folder),
        web_enabled=False,
        topic_partitions=1,
    )
    records, doubled = app.topic(source, value_serializer="json"), app.topic(sink, value_serializer="json")
    seen = app.Table("seen", default=int, partitions=1)

    async def double(stream: Any) -> None:
        async for value in stream:
            seen["all"] += 1
            await doubled.send(value={"n": 2 * value["n"]})

    app.agent(records)(double)
    sys.argv = ["faust", "worker", "-l", "info"]
    app.main()


def bytewax(address: str, source: str, sink: str, folder: Path) -> None:
    import bytewax.operators as op
    from bytewax.connectors.kafka import KafkaSinkMessage
    from bytewax.connectors.kafka import operators as kafka
    from bytewax.dataflow import Dataflow
    from bytewax.testing import run_main

    def double(message: Any) -> Any:
        return KafkaSinkMessage(message.key, json.dumps({"n": 2 * json.loads(message.value)["n"]}).encode())

    flow = Dataflow("double")
    records = kafka.input("in", flow, brokers=[address], topics=[source], tail=False)
    kafka.output("out", op.map("double", records.oks, double), brokers=[address], topic=sink)
    run_main(flow)


def pyflink(address: str, source: str, sink: str, folder: Path) -> None:
    """MOLDAU_FLINK_KAFKA_JAR is the SQL connector of Kafka."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.get_config().set("pipeline.jars", Path(os.environ["MOLDAU_FLINK_KAFKA_JAR"]).absolute().as_uri())
    common = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{address}', 'format' = 'json'"
    bounds = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
    env.execute_sql(f"CREATE TABLE records (n BIGINT) WITH ({common}, 'topic' = '{source}', {bounds})")
    env.execute_sql(f"CREATE TABLE doubled (n BIGINT) WITH ({common}, 'topic' = '{sink}')")
    env.execute_sql("INSERT INTO doubled SELECT 2 * n FROM records").wait()


def airflow(address: str, source: str, sink: str, folder: Path) -> None:
    """The operators of the Kafka provider, without a scheduler."""
    extra = {"bootstrap.servers": address, "group.id": "airflow", "auto.offset.reset": "earliest"}
    os.environ["AIRFLOW_HOME"] = str(folder)
    os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"] = json.dumps({"conn_type": "kafka", "extra": extra})
    from airflow.providers.apache.kafka.operators.consume import ConsumeFromTopicOperator
    from airflow.providers.apache.kafka.operators.produce import ProduceToTopicOperator

    found: list[int] = []

    def take(message: Any) -> None:
        found.append(json.loads(message.value())["n"])

    def doubled() -> Any:
        return [(None, json.dumps({"n": 2 * number})) for number in found]

    consume = ConsumeFromTopicOperator(
        task_id="consume", topics=[source], apply_function=take, max_messages=RECORDS, max_batch_size=10
    )
    consume.execute({})
    ProduceToTopicOperator(task_id="produce", topic=sink, producer_function=doubled).execute({})


PROGRAMS: Final[dict[str, Callable[[str, str, str, Path], None]]] = {
    program.__name__: program
    for program in (quix_streams, faststream_aiokafka, faststream_confluent, faust, bytewax, pyflink, airflow)
}

if __name__ == "__main__":
    _, name, address, source, sink, folder = sys.argv
    PROGRAMS[name](address, source, sink, Path(folder))
