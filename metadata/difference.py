"""The delta between any two images.

Usually a delta is the result of the records between two images (`MetadataUpdate`). A snapshot that replaces the copy of
a broker has no such records: its image is built from nothing, and the difference is found by comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .image import MetadataDelta, MetadataImage, PartitionChange

if TYPE_CHECKING:
    from ..protocol.steps import Steps
    from .registrations import TopicImage

_PARTITIONS_PER_STEP: Final = 200


def difference(before: MetadataImage, after: MetadataImage) -> Steps[MetadataDelta]:
    """What has changed between two images, as if the records between them had been replayed. In steps."""
    created = [topic for topic_id, topic in after.topics_by_id.items() if topic_id not in before.topics_by_id]
    deleted = [topic for topic_id, topic in before.topics_by_id.items() if topic_id not in after.topics_by_id]
    changes = [
        PartitionChange(topic.name, topic.topic_id, index, gone, None)
        for topic in deleted
        for index, gone in topic.partitions.items()
    ]
    for topic_id, topic in after.topics_by_id.items():
        yield from _add_changes(changes, before.topics_by_id.get(topic_id), topic)
    deleted_names = {topic.name for topic in deleted}
    configs = {
        resource
        for resource in {*before.configs, *after.configs}
        if before.configs.get(resource) != after.configs.get(resource)
        and (resource in after.configs or resource.name not in deleted_names)
    }
    brokers = {
        broker_id
        for broker_id in {*before.brokers, *after.brokers}
        if before.brokers.get(broker_id) != after.brokers.get(broker_id)
    }
    return MetadataDelta(
        before,
        after,
        tuple(created),
        tuple(deleted),
        tuple(changes),
        frozenset(configs),
        frozenset(brokers),
        before.features != after.features,
    )


def _add_changes(changes: list[PartitionChange], before: TopicImage | None, after: TopicImage) -> Steps[None]:
    previous = {} if before is None else before.partitions
    for count, (index, registration) in enumerate(sorted(after.partitions.items()), 1):
        if previous.get(index) != registration:
            changes.append(PartitionChange(after.name, after.topic_id, index, previous.get(index), registration))
        if not count % _PARTITIONS_PER_STEP:
            yield 0
    yield 0
