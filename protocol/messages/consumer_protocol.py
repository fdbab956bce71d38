"""The metadata that consumers exchange through classic groups: subscriptions and assignments.

In principle opaque to the coordinator; in practice it parses them to determine the topics of a group, and to translate
between classic members and consumer groups (KIP-848). Each is preceded by its version as an int16. A reader parses an
unknown newer version as the newest known one, so fields are only added at the end.

Owned partitions since version 1 (KIP-429), the generation since 2 (KIP-792), the rack since 3 (KIP-881).
"""

from ..schema import Message, Struct, array, bytes_, int32, string


class TopicPartition(Struct):
    topic: str = string("1+")
    partitions: list[int] = array(int32, "1+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a member subscribes to and owns."""

    topics: list[str] = array(string, "0+")
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class ResponseTopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """What a member is to read."""

    assigned_partitions: list[ResponseTopicPartition] = array(ResponseTopicPartition, "0+")
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)
