"""CRC-32C in steps, and of concatenated data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.checksum import STEP_BYTES, crc32c, crc32c_joined, crc32c_steps


@given(st.binary(), st.binary())
def test_the_checksum_of_two_pieces_is_computed_from_their_checksums(first: Any, second: Any) -> None:
    whole = crc32c(first + second)
    assert crc32c_joined(crc32c(first), crc32c(second), len(second)) == whole
    assert crc32c_joined(crc32c(first), whole, len(second)) == crc32c(second)


@pytest.mark.parametrize("size", [0, 1, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES + 17])
def test_the_checksum_in_steps_is_the_same(size: Any) -> None:
    data = memoryview(bytes(range(251)) * (size // 251 + 1))[:size]
    found = []

    def collect() -> Iterator[Any]:
        found.append((yield from crc32c_steps(data, 5)))

    assert list(collect()) == [0] * -(-size // STEP_BYTES)
    assert found == [crc32c(data, 5)]
    assert crc32c_joined(crc32c(b"first"), crc32c(data), size) == crc32c(b"first" + bytes(data))
