"""The table of APIs, and the lazy import of messages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from moldau.protocol.api import (
    ApiKey,
    message_class,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from moldau.protocol.messages.control_records import VotersRecord
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse


def test_classes_by_key() -> None:
    assert request_class(1) is FetchRequest
    assert response_class(ApiKey.FETCH) is FetchResponse


@pytest.mark.parametrize("key", [-1, 93, 32767])
def test_unknown_key(key: int) -> None:
    with pytest.raises(ValueError, match=f"{key} is not a valid ApiKey"):
        request_class(key)
    with pytest.raises(ValueError, match=f"{key} is not a valid ApiKey"):
        request_header_version(key, 0)


def test_removed_api_has_a_key_and_no_versions() -> None:
    assert not request_class(ApiKey.LEADER_AND_ISR).VERSIONS


def test_classes_by_name() -> None:
    assert message_class("FetchRequest") is FetchRequest
    assert message_class("VotersRecord") is VotersRecord
    for name in ("Fetch", "FetchTopic", "NoSuchRequest", "Request", "Message"):
        with pytest.raises(KeyError):
            message_class(name)


def test_header_versions_change_with_the_first_flexible_version() -> None:
    assert [request_header_version(ApiKey.FETCH, version) for version in (11, 12)] == [1, 2]
    assert [response_header_version(ApiKey.FETCH, version) for version in (11, 12)] == [0, 1]


def test_header_versions_of_apis_that_are_never_flexible() -> None:
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 32767) == 1
    assert response_header_version(ApiKey.SASL_HANDSHAKE, 32767) == 0


def test_the_response_of_api_versions_has_the_oldest_header() -> None:
    assert request_header_version(ApiKey.API_VERSIONS, 4) == 2
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0


def test_the_header_of_a_future_version_can_be_parsed() -> None:
    assert request_header_version(ApiKey.API_VERSIONS, 99) == 2


def test_messages_are_imported_on_first_use() -> None:
    program = """
import sys
from moldau.protocol import api, codec
before = {name for name in sys.modules if ".protocol.messages." in name}
api.request_class(1)
after = {name for name in sys.modules if ".protocol.messages." in name}
print(sorted(before), sorted(after))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[] ['moldau.protocol.messages.fetch']"
