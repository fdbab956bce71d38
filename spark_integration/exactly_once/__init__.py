"""A writer for Spark's ``foreachBatch`` that puts each row into Kafka exactly once.

Spark's own sink for Kafka writes each row at least once: a batch that runs again is in the topic twice.

    from moldau.spark_integration.exactly_once import ExactlyOnceWriter

    writer = ExactlyOnceWriter("localhost:9092", query_name="orders-to-billing", topic="billing")
    query = rows.writeStream.foreachBatch(writer).option("checkpointLocation", "/checkpoints/billing").start()

Spark repeats a batch, with the same number and the same input, until its checkpoint says that it is done. So it is
enough that a batch which runs again writes nothing twice, and that is what transactions are for here:

- A batch is split into as many parts as the query has writers, and a row always falls to the same one: a hash of its
  content decides (``rows``).
- A writer sends its part in one transaction, together with a marker that says which batch this was and how many
  rows it had, with a digest of them (``marker``). The marker goes to the writer's own partition of the query's topic
  of batches (``history``). Records and marker become visible together, or never.
- Whoever begins to write a part takes over the writer's transactional id first, which ends an older attempt at it, and
  then reads the last marker. If that is of this batch, the part is there already (``transaction``).

Nothing is remembered outside of Kafka, so it does not matter which of Spark's processes died, or when.
docs/decisions/0014-exactly-once-into-kafka.md says why the markers are records.
"""

from .errors import ExactlyOnceError
from .writer import ExactlyOnceWriter

__all__ = ["ExactlyOnceError", "ExactlyOnceWriter"]
