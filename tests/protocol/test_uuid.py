from __future__ import annotations

import pytest

from moldau.protocol.uuid import ONE_UUID, ZERO_UUID, random_uuid, uuid_from_str, uuid_to_str


def test_printed_form() -> None:
    assert uuid_to_str(ZERO_UUID) == "A" * 22
    assert uuid_to_str(ONE_UUID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_str(bytes([255] * 16)) == "_____________________w"
    assert uuid_from_str("_____________________w") == bytes([255] * 16)
    assert uuid_from_str("-----------------_____==") == uuid_from_str("-----------------_____")


def test_random_uuids() -> None:
    made = {random_uuid() for _ in range(500)}
    assert len(made) == 500
    for uuid in made:
        assert uuid_from_str(uuid_to_str(uuid)) == uuid
        assert not uuid_to_str(uuid).startswith("-")


@pytest.mark.parametrize("text", ["", "A", "A" * 21 + "!", "A" * 23, "A" * 26, "+" * 22, "é" * 22, "A" * 11 + " " * 11])
def test_text_that_is_not_a_uuid(text: str) -> None:
    with pytest.raises(ValueError, match="is not a UUID"):
        uuid_from_str(text)


def test_wrong_length() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 15"):
        uuid_to_str(bytes(15))
