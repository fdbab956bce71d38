"""DeleteTopics (20): deletes topics, by name or by id.

* Versions up to 5 list topics in `topic_names`, later ones in `topics`, by name or by id, never both.
* A duplicate name or id is rejected, and so is a name whose id is also in the request.
* An unknown name is UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID.
* With `delete.topic.enable=false` the whole request fails with TOPIC_DELETION_DISABLED.

One RemoveTopicRecord also removes the partitions and configs. The brokers delete the data when they replay the record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ..protocol.uuid import ZERO_UUID
from .outcome import Outcome, Versioned, check_record_count
from .records import RemoveTopicRecord

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, context: ControllerContext
) -> Outcome[DeleteTopicsResponse]:
    """Decide on a DeleteTopicsRequest. Raises TOPIC_DELETION_DISABLED if topics must not be deleted."""
    if not context.delete_topic_enabled:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topics cannot be deleted: delete.topic.enable is false.")
    results: list[DeletableTopicResult] = []

    def refuse(name: str | None, topic_id: bytes, code: ErrorCode, message: str) -> None:
        results.append(DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message))

    names = Counter(request.topic_names)
    ids: Counter[bytes] = Counter()
    for topic in request.topics:
        if topic.name is None and topic.topic_id == ZERO_UUID:
            refuse(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "A topic has neither name nor id.")
        elif topic.name is None:
            ids[topic.topic_id] += 1
        elif topic.topic_id == ZERO_UUID:
            names[topic.name] += 1
        else:
            message = "A topic has both name and id; one is enough."
            refuse(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, message)

    to_delete: dict[bytes, str] = {}
    for topic_id, count in ids.items():
        found = image.topics_by_id.get(topic_id)
        if count > 1:
            refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "The request contains this topic id more than once.")
        elif found is None:
            refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id.")
        else:
            to_delete[topic_id] = found.name
    for name, count in names.items():
        found = image.topics_by_name.get(name)
        if count > 1:
            refuse(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "The request contains this topic more than once.")
        elif found is None:
            message = f"There is no topic '{name}'."
            refuse(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        elif found.topic_id in ids:
            # The request names the topic twice, by name and by id: the topic is not deleted.
            to_delete.pop(found.topic_id, None)
            message = "The request also contains this topic by its id."
            refuse(name, found.topic_id, ErrorCode.INVALID_REQUEST, message)
        else:
            to_delete[found.topic_id] = name

    records = [Versioned(RemoveTopicRecord(topic_id=topic_id)) for topic_id in to_delete]
    check_record_count(records)
    results += [DeletableTopicResult(name=name, topic_id=topic_id) for topic_id, name in to_delete.items()]
    return Outcome(DeleteTopicsResponse(responses=results), records)
