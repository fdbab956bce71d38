from pathlib import Path

from moldau.protocol.api import request_class, response_class
from moldau.server.api_page import page
from moldau.server.dispatch import APIS, Route


def test_the_page_of_apis_is_up_to_date():
    written = (Path(__file__).parents[2] / "docs" / "apis.md").read_text()
    assert written == page(), "make it anew: python -m moldau.server.api_page > docs/apis.md"


def test_every_version_that_is_served_has_its_handler_decoder_and_encoder():
    for api in APIS:
        for version in range(max(api.min_version, api.lowest_served), api.max_version + 1):
            route = Route(api, version)
            assert callable(route.handle)
            assert callable(route.failed)


def test_versions_are_stable_ones_of_the_declarations():
    for api in APIS:
        for cls in (request_class(api.key), response_class(api.key)):
            assert api.max_version <= cls.STABLE_VERSIONS.highest
            assert max(api.min_version, api.lowest_served) >= cls.VERSIONS.lowest


def test_keys_are_there_once_and_in_order():
    keys = [int(api.key) for api in APIS]
    assert keys == sorted(set(keys))
