"""The names of error codes in failures."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from moldau.conformance.check import shown
from moldau.conformance.error_codes import Code, like, with_names
from moldau.protocol.codec import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchResponse
from moldau.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse


class Fetched(NamedTuple):
    error_code: int
    offset: int


def test_a_code_is_its_number_and_shows_its_name() -> None:
    code = Code(3)
    assert code == 3
    assert ErrorCode(code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert repr(code) == str(code) == f"{code}" == "UNKNOWN_TOPIC_OR_PARTITION (3)"
    assert str(Code(-155)) == "unknown error code -155"


def test_the_codes_of_a_message_have_names_and_its_bytes_are_the_same() -> None:
    partition = PartitionProduceResponse(index=3, error_code=3, base_offset=3)
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    before = encode(response, 9)
    with_names(response)
    assert shown((partition.index, partition.error_code)) == "(3, UNKNOWN_TOPIC_OR_PARTITION (3))"
    assert encode(response, 9) == before
    with_names(FetchResponse())


@pytest.mark.parametrize(
    ("expected", "actual", "text"),
    [
        (0, Code(3), "NONE (0)"),
        (0, 3, "0"),
        (True, Code(3), "True"),
        ([0, 0, 0], [Code(3)], "[NONE (0), NONE (0), NONE (0)]"),
        ([(1, 0), (0, 3)], [(1, Code(3))], "[(1, NONE (0)), (0, UNKNOWN_TOPIC_OR_PARTITION (3))]"),
        (
            {("t", 0): 3, ("t", 1): 0},
            {("t", 0): Code(0)},
            "{('t', 0): UNKNOWN_TOPIC_OR_PARTITION (3), ('t', 1): NONE (0)}",
        ),
        ({42}, {Code(0), Code(3)}, "{INVALID_REQUEST (42)}"),
        (Fetched(0, 0), Fetched(Code(3), 0), "Fetched(error_code=NONE (0), offset=0)"),
        ((0, 5), (Code(3),), "(NONE (0), 5)"),
        ([ErrorCode.NONE], [], "[NONE (0)]"),
        ({"t": {0: 3}}, None, "{'t': {0: 3}}"),
        ([], [Code(3)], "[]"),
        ("NONE", Code(3), "'NONE'"),
    ],
)
def test_what_is_expected_has_names_where_the_response_has_codes(expected: Any, actual: Any, text: str) -> None:
    assert shown(like(expected, actual)) == text
    assert like(expected, actual) == expected
