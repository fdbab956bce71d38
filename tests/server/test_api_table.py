from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from moldau.protocol.api import request_class, response_class
from moldau.protocol.errors import ErrorCode, KafkaError
from moldau.protocol.samples import Samples
from moldau.protocol.steps import completed
from moldau.server.apis import APIS
from moldau.server.controller_apis import CONTROLLER_APIS, FORWARDABLE
from moldau.server.requests.api_page import page
from moldau.server.requests.dispatch import Dispatcher, Route


def test_the_documentation_of_apis_is_up_to_date() -> None:
    written = (Path(__file__).parents[2] / "docs" / "apis.md").read_text()
    assert written == page(), "regenerate it: python -m moldau.server.requests.api_page > docs/apis.md"


def test_every_served_version_has_a_handler_a_decoder_and_an_encoder() -> None:
    for api in (*APIS, *CONTROLLER_APIS):
        for version in range(max(api.min_version, api.lowest_served), api.max_version + 1):
            route = Route(api, version)
            assert callable(route.handle)
            assert callable(route.failed)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.ILLEGAL_SASL_STATE])
def test_every_served_version_has_a_response_for_an_error_of_the_request(code: ErrorCode) -> None:
    samples = Samples(1)
    for api in (*APIS, *CONTROLLER_APIS):
        for version in range(max(api.min_version, api.lowest_served), api.max_version + 1):
            route = Route(api, version)
            answer = route.failed(samples.message(request_class(api.key), version), KafkaError(code, "a reason"))
            response = completed(answer) if isinstance(answer, Generator) else answer
            parts = route.encode_response(1, response)
            assert len(b"".join(parts)) > 8, (api.key, version)  # type: ignore[arg-type]


def test_served_versions_are_declared_and_stable() -> None:
    for api in (*APIS, *CONTROLLER_APIS):
        for cls in (request_class(api.key), response_class(api.key)):
            assert api.max_version <= cls.STABLE_VERSIONS.highest
            assert max(api.min_version, api.lowest_served) >= cls.VERSIONS.lowest


def test_api_keys_are_unique_and_in_order() -> None:
    keys = [int(api.key) for api in APIS]
    assert keys == sorted(set(keys))


def test_a_controller_serves_each_api_once_and_all_that_brokers_forward() -> None:
    keys = [api.key for api in CONTROLLER_APIS]
    assert len(set(keys)) == len(keys)
    assert set(keys) >= FORWARDABLE


def test_the_table_determines_whose_response_waits_behind_earlier_requests() -> None:
    frames = {api.key: int(api.key).to_bytes(2, "big") + bytes(6) for api in APIS}
    waiting = [key.name for key, frame in frames.items() if not Dispatcher().completes_earlier(frame)]
    assert waiting == ["METADATA"]
