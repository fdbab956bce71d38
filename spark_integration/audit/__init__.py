"""The audit of the Kafka paper: every tier counts, the counts travel through a topic, and the books are balanced.

    from moldau.spark_integration.audit import Audit

    with Audit("localhost:9092") as audit:
        producer = audit.producer(KafkaProducer(bootstrap_servers="localhost:9092"))
        consumer = audit.consumer(KafkaConsumer("orders", group_id="billing"), group="billing")

What counts is here and needs no pyspark: ``book`` (what is counted), ``page`` (the record of the topic), ``channel``
(the way to the topic), ``clients`` (kafka-python, confluent-kafka, aiokafka) and ``counting`` (all of it together).
What balances is the Spark job: ``request`` and ``cluster`` (what is read), ``ledger`` (the rows), ``balance`` (the
books), ``report`` and ``plot`` (what came out).

A record's identity is its partition and offset. Every tier learns it: a producer by the delivery report, the server by
definition, consumers and archives with the record. So a loss and a duplicate in one window do not cancel out, each is
named with its offsets, and records are not touched.
"""

from .book import AUDIT_TOPIC
from .channel import Channel, ChannelError, KafkaChannel
from .counting import Audit, Counter

__all__ = ["AUDIT_TOPIC", "Audit", "Channel", "ChannelError", "Counter", "KafkaChannel"]
