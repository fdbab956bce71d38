"""A real client that works for a case of the layer `clients`: jobs for its adapter, through a proxy that records them.

The jobs are those of `moldau conformance-client` (docs/conformance.md). A job that fails is a failure of the case; it
names the client, its version and the call of its API, so that the author of a server can repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple

from .check import Check
from .client.adapter import Adapter, JobError
from .outcome import MismatchError
from .real_clients import title_of
from .recording_proxy import RecordingProxy

_CONCURRENT: Final = 4

# The call of the client's API that does a job. Other jobs are shown by their names.
_CALLS: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka-python": {
        "produce": "KafkaProducer.send",
        "consume": "KafkaConsumer.assign, seek and poll",
        "consume_group": "KafkaConsumer.subscribe, poll and commit",
        "offset_for_time": "KafkaConsumer.offsets_for_times",
        "offsets": "KafkaConsumer.beginning_offsets and end_offsets",
        "commit": "KafkaConsumer.commit",
        "committed": "KafkaConsumer.committed",
        "transact": "KafkaProducer.begin_transaction, send and commit_transaction",
        "create_topic": "KafkaAdminClient.create_topics",
        "delete_topic": "KafkaAdminClient.delete_topics",
        "create_partitions": "KafkaAdminClient.create_partitions",
        "list_topics": "KafkaAdminClient.describe_topics",
        "topic_configs": "KafkaAdminClient.describe_configs",
        "set_topic_config": "KafkaAdminClient.alter_configs",
        "delete_records": "KafkaAdminClient.delete_records",
        "list_groups": "KafkaAdminClient.list_groups",
        "describe_group": "KafkaAdminClient.describe_groups",
        "delete_group": "KafkaAdminClient.delete_groups",
    },
    "confluent-kafka": {
        "produce": "Producer.produce",
        "consume": "Consumer.assign and consume",
        "consume_group": "Consumer.subscribe, consume and commit",
        "offset_for_time": "Consumer.offsets_for_times",
        "offsets": "Consumer.get_watermark_offsets",
        "commit": "Consumer.commit",
        "committed": "Consumer.committed",
        "transact": "Producer.begin_transaction, produce and commit_transaction",
        "create_topic": "AdminClient.create_topics",
        "delete_topic": "AdminClient.delete_topics",
        "create_partitions": "AdminClient.create_partitions",
        "list_topics": "AdminClient.list_topics",
        "topic_configs": "AdminClient.describe_configs",
        "set_topic_config": "AdminClient.incremental_alter_configs",
        "delete_records": "AdminClient.delete_records",
        "list_groups": "AdminClient.list_consumer_groups",
        "describe_group": "AdminClient.describe_consumer_groups",
        "delete_group": "AdminClient.delete_consumer_groups",
    },
    "aiokafka": {
        "produce": "AIOKafkaProducer.send",
        "consume": "AIOKafkaConsumer.assign, seek and getmany",
        "consume_group": "AIOKafkaConsumer.subscribe, getmany and commit",
        "offset_for_time": "AIOKafkaConsumer.offsets_for_times",
        "offsets": "AIOKafkaConsumer.beginning_offsets and end_offsets",
        "commit": "AIOKafkaConsumer.commit",
        "committed": "AIOKafkaConsumer.committed",
        "transact": "AIOKafkaProducer.begin_transaction, send and commit_transaction",
        "create_topic": "AIOKafkaAdminClient.create_topics",
        "delete_topic": "AIOKafkaAdminClient.delete_topics",
        "create_partitions": "AIOKafkaAdminClient.create_partitions",
        "list_topics": "AIOKafkaAdminClient.describe_topics",
        "topic_configs": "AIOKafkaAdminClient.describe_configs",
        "set_topic_config": "AIOKafkaAdminClient.alter_configs",
        "delete_records": "AIOKafkaAdminClient.delete_records",
        "list_groups": "AIOKafkaAdminClient.list_consumer_groups",
        "describe_group": "AIOKafkaAdminClient.describe_consumer_groups",
    },
    "kcat": {
        "produce": "kcat -P",
        "consume": "kcat -C -e",
        "consume_group": "kcat -G",
        "offset_for_time": "kcat -Q",
        "list_topics": "kcat -L -J",
    },
    "java": {
        "produce": "KafkaProducer.send",
        "consume": "KafkaConsumer.assign, seek and poll",
        "consume_group": "KafkaConsumer.subscribe, poll and commitSync",
        "offset_for_time": "KafkaConsumer.offsetsForTimes",
        "offsets": "KafkaConsumer.beginningOffsets and endOffsets",
        "commit": "KafkaConsumer.commitSync",
        "committed": "KafkaConsumer.committed",
        "transact": "KafkaProducer.beginTransaction, send and commitTransaction",
        "create_topic": "Admin.createTopics",
        "delete_topic": "Admin.deleteTopics",
        "create_partitions": "Admin.createPartitions",
        "list_topics": "Admin.listTopics and describeTopics",
        "topic_configs": "Admin.describeConfigs",
        "set_topic_config": "Admin.incrementalAlterConfigs",
        "delete_records": "Admin.deleteRecords",
        "list_groups": "Admin.listGroups",
        "describe_group": "Admin.describeConsumerGroups",
        "delete_group": "Admin.deleteConsumerGroups",
    },
    "franz-go": {
        "produce": "kgo.Client.ProduceSync",
        "consume": "kgo.Client.PollFetches",
        "consume_group": "kgo.Client.PollFetches and CommitUncommittedOffsets",
        "offset_for_time": "kadm.Client.ListOffsetsAfterMilli",
        "offsets": "kadm.Client.ListStartOffsets and ListEndOffsets",
        "commit": "kadm.Client.CommitOffsets",
        "committed": "kadm.Client.FetchOffsetsForTopics",
        "transact": "kgo.Client.BeginTransaction, Produce and EndTransaction",
        "create_topic": "kadm.Client.CreateTopic",
        "delete_topic": "kadm.Client.DeleteTopics",
        "create_partitions": "kadm.Client.UpdatePartitions",
        "list_topics": "kadm.Client.ListTopicsWithInternal",
        "topic_configs": "kadm.Client.DescribeTopicConfigs",
        "set_topic_config": "kadm.Client.AlterTopicConfigs",
        "delete_records": "kadm.Client.DeleteRecords",
        "list_groups": "kadm.Client.ListGroups",
        "describe_group": "kadm.Client.DescribeGroups",
        "delete_group": "kadm.Client.DeleteGroups",
    },
}


class Acknowledged(NamedTuple):
    """The producer's report of one record."""

    partition: int
    offset: int


class Consumed(NamedTuple):
    """A record as the client shows it."""

    offset: int
    value: str | None
    key: str | None
    headers: list[tuple[str, str | None]]


class ClientJobs:
    """The jobs of one case, closed at its end."""

    def __init__(self, c: Check, client: str) -> None:
        assert c.clients is not None, "only a case of the layer clients may use a client"
        self._c = c
        self._clients = c.clients
        self._client = client
        self._proxy = RecordingProxy(c.target, c.recorder)
        self._adapter: Adapter | None = None
        self._others: list[tuple[Adapter, Future[dict[str, Any]]]] = []
        self._threads = ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="client-job")
        c.attach(self)

    def call_of(self, job: str) -> str:
        """The client, its version, and what it does, for a failure."""
        return f"{title_of(self._client)}: {_CALLS[self._client].get(job, job)}"

    def do(self, job: str, **arguments: Any) -> dict[str, Any]:
        """The response to a job, which must not fail."""
        return self._successful(job, lambda: self._response(self._main(), job, arguments))

    def expect_error(self, job: str, code: str, when: str = "", **arguments: Any) -> None:
        """The job must fail with this error code. `when` describes the job, such as "for a missing topic"."""
        try:
            self._response(self._main(), job, arguments)
            actual = "no error"
        except JobError as error:
            if error.code == code:
                return
            actual = str(error)
        raise MismatchError(f"{self.call_of(job)}{when and ' '}{when}", code, actual)

    def start(self, job: str, **arguments: Any) -> Future[dict[str, Any]]:
        """Start a job in another process of the client; `finished` returns its response."""
        adapter = self._clients.take(self._client)
        future = self._threads.submit(self._successful, job, lambda: self._response(adapter, job, arguments))
        self._others.append((adapter, future))
        return future

    def finished(self, future: Future[dict[str, Any]], job: str) -> dict[str, Any]:
        """The response to a job that was started."""
        try:
            return future.result(self._c.remaining())
        except FutureTimeoutError:
            raise MismatchError(
                self.call_of(job), "its end before the deadline of the case", "it is still running"
            ) from None

    # The most frequent jobs

    def produce(
        self,
        topic: str,
        records: Sequence[Mapping[str, Any]],
        *,
        acks: str = "all",
        idempotent: bool = False,
        **options: Any,
    ) -> list[Acknowledged]:
        """`records`: `value`, and perhaps `key`, `headers`, `timestamp` and `partition`."""
        options |= {"acks": acks, "idempotent": idempotent}
        answer = self.do("produce", topic=topic, records=records, options=options)
        return [Acknowledged(each["partition"], each["offset"]) for each in answer["acknowledged"]]

    def consume(self, topic: str, *, partition: int = 0, start: int = 0, **options: Any) -> list[Consumed]:
        """The records from `start` to the end."""
        answer = self.do("consume", topic=topic, partition=partition, start=start, options=options)
        return [
            Consumed(each["offset"], each["value"], each["key"], [(name, value) for name, value in each["headers"]])
            for each in answer["records"]
        ]

    # Internals

    def _main(self) -> Adapter:
        if self._adapter is None:
            self._adapter = self._clients.take(self._client)
        return self._adapter

    def _response(self, adapter: Adapter, job: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return adapter.do(job, self._c.remaining(), bootstrap=self._proxy.address, **arguments)
        except MismatchError as found:
            raise MismatchError(self.call_of(job), found.expected, found.actual) from None

    def _successful(self, job: str, response: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return response()
        except JobError as error:
            raise MismatchError(self.call_of(job), "no error", str(error)) from None

    def interrupt(self) -> None:
        """End the processes, so that the case no longer waits for them."""
        for adapter in (self._adapter, *(adapter for adapter, _ in list(self._others))):
            if adapter is not None:
                self._clients.discard(adapter)

    def close(self) -> None:
        self._proxy.close()
        for adapter, future in self._others:
            if future.done():
                self._clients.give_back(self._client, adapter)
            else:
                self._clients.discard(adapter)
        self._threads.shutdown()
        if self._adapter is not None:
            self._clients.give_back(self._client, self._adapter)
