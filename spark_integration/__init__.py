"""Spark beside the server: a session that finds its own connector, and the options of ``format("kafka")``.

    from moldau.spark_integration import kafka_options, session

    spark = session("orders")
    rows = spark.read.format("kafka").options(**kafka_options("localhost:9092", "orders")).load()

Nothing here is particular to Moldau: it is Spark's own source and sink against any Kafka address. pyspark itself
(the extra ``spark``) is imported when a session is asked for.
"""

from .connector import SparkUnavailableError
from .options import kafka_options
from .session import session

__all__ = ["SparkUnavailableError", "kafka_options", "session"]
