from __future__ import annotations

from moldau.protocol.codec import encode
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.samples import Samples


def test_same_seed_same_messages() -> None:
    first = [encode(Samples(seed).message(FetchRequest, 17), 17) for seed in range(20)]
    assert first == [encode(Samples(seed).message(FetchRequest, 17), 17) for seed in range(20)]
    assert len(set(first)) == 20


def test_nulls_on_request() -> None:
    for seed in range(20):
        assert Samples(seed, null_probability=1).message(MetadataRequest, 9).topics is None
        assert Samples(seed, null_probability=0).message(MetadataRequest, 9).topics is not None


def test_only_fields_of_the_version_are_set() -> None:
    for seed in range(20):
        assert Samples(seed).message(FetchRequest, 4).rack_id == ""
        assert Samples(seed, tag_probability=1).message(FetchRequest, 11).unknown_tagged_fields is None
