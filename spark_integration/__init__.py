"""Spark integration: a session with the matching Kafka connector, and the options of ``format("kafka")``.

    from moldau.spark_integration import kafka_options, session

    spark = session("orders")
    rows = spark.read.format("kafka").options(**kafka_options("localhost:9092", "orders")).load()

Nothing here is specific to Moldau: Spark's own source and sink are used, with any Kafka server. pyspark (the extra
``spark``) is imported when ``session()`` is called.
"""

from .connector import SparkUnavailableError
from .options import kafka_options
from .session import session

__all__ = ["SparkUnavailableError", "kafka_options", "session"]
