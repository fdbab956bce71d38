"""A client that copies a topic exactly once: consume, produce and commit in transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from moldau.compat_tests.cluster_load import is_retriable
from moldau.compat_tests.kill_rounds import DEADLINE_S, Reader, Writer, WrongError, client_config
from moldau.testing.retriable_steps import retried


class Copy(Writer):
    """Copies the records of a topic to another one, in transactions that also commit the offsets of its group."""

    def __init__(self, bootstrap_servers: str, source: str, target: str) -> None:
        super().__init__(target, 1)
        self._source = source
        self._consumer = Consumer(
            client_config(
                bootstrap_servers,
                group_id="copy",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            )
        )
        # librdkafka sends the offsets to the coordinator that it knows. When that broker has left the cluster, it waits
        # without a timeout until the state of a connection changes (its issues 5511 and 5456), which this ensures.
        self._producer = Producer(
            client_config(
                bootstrap_servers,
                transactional_id="copy",
                transaction_timeout_ms=int(DEADLINE_S * 1000),
                connections_max_idle_ms=1000,
            )
        )
        self.aborted = 0
        self.errors: Counter[str] = Counter()

    def _run(self) -> None:
        retried(lambda: self._producer.init_transactions(DEADLINE_S))
        self._consumer.subscribe([self._source])
        try:
            while not self._stopping.is_set():
                messages = [each for each in self._consumer.consume(100, 0.1) if self._has_record(each)]
                if messages:
                    self._transaction(messages)
        finally:
            self._consumer.close()

    def _has_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if not is_retriable(error):
            raise KafkaException(error)
        self.errors[error.name()] += 1
        return False

    def _transaction(self, messages: Sequence[Message]) -> None:
        producer, consumer = self._producer, self._consumer
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(self.topic, value=message.value(), partition=0)
            after = TopicPartition(self._source, 0, (messages[-1].offset() or 0) + 1)
            metadata = consumer.consumer_group_metadata()
            retried(lambda: producer.send_offsets_to_transaction([after], metadata, DEADLINE_S))
            retried(lambda: producer.commit_transaction(DEADLINE_S))
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            if not failure.txn_requires_abort():
                raise
            self.errors[failure.name()] += 1
            self.aborted += 1
            retried(lambda: producer.abort_transaction(DEADLINE_S))
            if consumer.assignment():  # otherwise it continues with the committed offset
                consumer.seek(TopicPartition(self._source, 0, messages[0].offset() or 0))
        else:
            self.written += len(messages)

    def snapshot(self) -> int:
        return self.written

    def check(self, reader: Reader, acknowledged: int) -> None:
        """The copy has the records of the source, which are numbers, once and in order."""
        numbers = [int(message.value() or b"") for message in reader.read(self.topic, 0, 0)]
        if numbers != list(range(len(numbers))):
            wrong = next(index for index, number in enumerate(numbers) if number != index)
            raise WrongError(f"the copy has {numbers[max(0, wrong - 2) : wrong + 3]} at {wrong}")
        if len(numbers) != acknowledged:
            raise WrongError(f"the copy has {len(numbers)} records, and {acknowledged} were committed")

    def line(self) -> str:
        """What it has done."""
        return f"copy: {self.written} records, {self.aborted} aborted attempts; retried: {dict(self.errors) or 'none'}"
