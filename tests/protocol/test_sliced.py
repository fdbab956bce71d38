"""The sliced form of a codec behaves like the plain form, with pauses."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from moldau.protocol.api import message_classes
from moldau.protocol.codec import decoder, encode, encode_parts, sliced_decoder, sliced_encoder
from moldau.protocol.errors import MalformedMessage
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.samples import Samples
from moldau.protocol.schema import Message
from moldau.protocol.source import STEP

MESSAGES = [cls for cls in message_classes() if cls.VERSIONS]
every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


def run(steps: Generator[int, None, Any]) -> tuple[Any, list[int]]:
    """The result, and the yielded values."""
    yielded = []
    while True:
        try:
            yielded.append(next(steps))
        except StopIteration as end:
            return end.value, yielded


@every_message
def test_decodes_and_encodes_like_the_plain_form(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        message = Samples(seed=4, tag_probability=0.3).message(cls, version)
        parts: list[Any] = []
        encode_parts(message, version, parts)
        sliced: list[Any] = []
        run(sliced_encoder(cls, version)(message, sliced))
        assert sliced == parts
        data = encode(message, version)
        assert run(sliced_decoder(cls, version)(data, 0))[0] == decoder(cls, version)(data, 0) == (message, len(data))


@every_message
def test_rejects_the_same_as_the_plain_form(cls: type[Message]) -> None:
    version = cls.VERSIONS.highest
    data = encode(Samples(seed=5).message(cls, version), version)
    plain, sliced = decoder(cls, version), sliced_decoder(cls, version)
    for end in range(0, len(data), max(1, len(data) // 20)):
        assert outcome(plain, data[:end]) == outcome(
            lambda buf, pos, sliced=sliced: run(sliced(buf, pos))[0], data[:end]
        )


def outcome(decode: Any, data: bytes) -> Any:
    """The decoded message, or the text of the error."""
    try:
        return decode(data, 0)
    except MalformedMessage as error:
        return str(error)


def test_yields_the_number_of_decoded_elements_every_few_hundred() -> None:
    request = FindCoordinatorRequest(coordinator_keys=[str(number) for number in range(10_000)])
    (decoded, _), yielded = run(sliced_decoder(FindCoordinatorRequest, 4)(encode(request, 4), 0))
    assert decoded == request
    assert sum(yielded) == 10_000
    assert max(yielded) <= STEP + 1


def test_counts_numbers_before_they_are_decoded() -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(500_000)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    steps = sliced_decoder(OffsetFetchRequest, 8)(encode(request, 8), 0)
    assert next(steps) >= 500_000
    (decoded, _), yielded = run(steps)
    assert decoded == request
    assert len(yielded) > 100


def test_counts_tagged_fields() -> None:
    tags = dict.fromkeys(range(100, 5100), b"")
    data = encode(FindCoordinatorRequest(coordinator_keys=[], unknown_tagged_fields=tags), 4)
    assert sum(run(sliced_decoder(FindCoordinatorRequest, 4)(data, 0))[1]) >= 5_000
