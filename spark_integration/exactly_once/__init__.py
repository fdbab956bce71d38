"""A writer for Spark's ``foreachBatch`` that writes each row to Kafka exactly once.

Spark's own sink for Kafka writes each row at least once: a batch that is repeated is in the topic twice.

    from moldau.spark_integration.exactly_once import ExactlyOnceWriter

    writer = ExactlyOnceWriter("localhost:9092", query_name="orders-to-billing", topic="billing")
    query = rows.writeStream.foreachBatch(writer).option("checkpointLocation", "/checkpoints/billing").start()

Spark repeats a batch, with the same number and the same input, until its checkpoint states that it is complete. So a
repeated batch must not write anything twice. Transactions ensure this:

- A batch is split into as many parts as the query has writers. A hash of its content assigns a row to a writer, always
  to the same one (``rows``).
- A writer sends its part in one transaction, together with a marker that contains the batch number, the number of rows
  and their digest (``marker``). The marker goes to the writer's own partition of the query's topic of batches
  (``history``). Records and marker become visible together, or never.
- A task that writes a part first initializes the writer's transactional id, which ends any older attempt at the part.
  Then it reads the last marker. If the marker is of this batch, the part is already written (``transaction``).

All state is in Kafka, so it does not matter which of Spark's processes died, or when.
docs/decisions/0014-exactly-once-into-kafka.md says why the markers are records.
"""

from .errors import ExactlyOnceError
from .writer import ExactlyOnceWriter

__all__ = ["ExactlyOnceError", "ExactlyOnceWriter"]
