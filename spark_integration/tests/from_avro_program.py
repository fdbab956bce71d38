"""The program of docs/registry.md for values of a schema registry, in a process with its own session.

Arguments: bootstrap servers, the topic, and the address of the registry. It prints a JSON object per row.
"""

import json
import sys
import urllib.request

from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import expr

from moldau.spark_integration import kafka_options, session
from moldau.spark_integration.archive_values import avro_packages

bootstrap_servers, topic, registry = sys.argv[1:]
with urllib.request.urlopen(f"{registry}/subjects/{topic}-value/versions/latest/schema") as response:
    schema = response.read().decode()
conf = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.memory": "500m"}
spark = session("from-avro", conf | avro_packages({}))
rows = spark.read.format("kafka").options(**kafka_options(bootstrap_servers, topic)).load()
# A zero byte and the id of the schema (4 bytes) precede the value.
orders = rows.select(from_avro(expr("substring(value, 6)"), schema).alias("order")).select("order.*")
for row in sorted(orders.collect()):
    print(json.dumps(row.asDict()))
spark.stop()
