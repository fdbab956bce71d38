"""Errors of `read_topic`."""


class TopicReadError(Exception):
    """A topic cannot be read: the server does not respond, rejects the client, or no longer has the records."""


class UnknownTopicError(TopicReadError):
    """The topic or the partition does not exist."""
