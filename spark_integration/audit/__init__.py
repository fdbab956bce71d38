"""The audit of the Kafka paper: every tier counts records, publishes its counts to a topic, and a job compares them.

    from moldau.spark_integration.audit import Audit

    with Audit("localhost:9092") as audit:
        producer = audit.producer(KafkaProducer(bootstrap_servers="localhost:9092"))
        consumer = audit.consumer(KafkaConsumer("orders", group_id="billing"), group="billing")

The counting part needs no pyspark: ``book`` (the counts of a client), ``page`` (the record of the audit topic),
``channel`` (the connection to the topic), ``clients`` (kafka-python, confluent-kafka, aiokafka) and ``counting`` (the
public classes). The Spark job compares the counts: ``request`` and ``cluster`` (what is read), ``ledger`` (the rows),
``balance`` (the comparison), ``report`` and ``plot`` (the results).

A record's identity is its partition and offset. Every tier has it: a producer from the delivery report, the server by
definition, consumers and archives from the record. So a loss and a duplicate in one window do not cancel each other
out, each is reported with its offsets, and records are not modified.
"""

from .book import AUDIT_TOPIC
from .channel import Channel, ChannelError, KafkaChannel
from .counting import Audit, Counter

__all__ = ["AUDIT_TOPIC", "Audit", "Channel", "ChannelError", "Counter", "KafkaChannel"]
