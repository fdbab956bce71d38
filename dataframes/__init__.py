"""Topics as data frames: `read_topic` returns records as Arrow, pandas or Polars.

This is a client of any Kafka server, with librdkafka (confluent-kafka) behind it. It imports no other part of Moldau.
`moldau.read_topic` is this function. Requires ``pip install 'moldau[dataframes]'``.
"""

from .decoders import DecodeError, Decoder
from .errors import TopicReadError, UnknownTopicError
from .positions import Position
from .progress import Progress
from .topic_range import TopicRange, read_topic

__all__ = [
    "DecodeError",
    "Decoder",
    "Position",
    "Progress",
    "TopicRange",
    "TopicReadError",
    "UnknownTopicError",
    "read_topic",
]
