"""From the bytes of keys and values to Arrow arrays.

An array holds one column of one batch. Null keys and values are never decoded and stay null. A value that cannot be
decoded raises `DecodeError`, which names its partition and offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from .errors import TopicReadError

if TYPE_CHECKING:
    import pyarrow as pa

Decoder = Literal["bytes", "utf8", "json"] | Callable[[bytes], Any]
"""How the bytes of a key or value are decoded. A function receives bytes and returns what Arrow can store."""

_SHOWN_BYTES: Final = 60


class DecodeError(TopicReadError):
    """A key or value cannot be decoded, or does not have the type of its column."""


Place = tuple[int, int]
"""The partition and the offset of a record."""


class ColumnDecoder:
    """Decodes one column.

    :param column: "key" or "value".
    :param type: the Arrow type of the column, or None for the type that Arrow infers.
    """

    def __init__(self, column: str, decoder: Decoder, type: pa.DataType | None) -> None:
        import pyarrow as pa

        self._column = column
        self._decode: Callable[[bytes], Any] | None
        if decoder == "bytes" or decoder == "utf8":
            if type is not None:
                raise ValueError(f"{column}_type is only for the decoder 'json' and for functions, not for {decoder!r}")
            self._decode = None if decoder == "bytes" else _utf8
            type = pa.binary() if decoder == "bytes" else pa.string()
        elif decoder == "json":
            self._decode = json.loads
        elif callable(decoder):
            self._decode = decoder
        else:
            raise ValueError(f"the decoder of the {column} is {decoder!r}; use 'bytes', 'utf8', 'json' or a function")
        self.type = pa.struct(list(type)) if isinstance(type, pa.Schema) else type

    def array(self, values: Sequence[bytes | None], places: Sequence[Place]) -> pa.Array:
        """The column of one batch. Raises DecodeError."""
        import pyarrow as pa

        decode = self._decode
        decoded: Sequence[Any] = values
        if decode is not None:
            try:
                decoded = [None if value is None else decode(value) for value in values]
            except Exception as error:
                raise self._undecodable(values, places) from error
        try:
            return pa.array(decoded, type=self.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise self._mismatch(decoded, places, error) from error

    def _undecodable(self, values: Sequence[bytes | None], places: Sequence[Place]) -> DecodeError:
        """The error for the first value that cannot be decoded."""
        assert self._decode is not None
        for value, place in zip(values, places, strict=True):
            if value is not None:
                try:
                    self._decode(value)
                except Exception as error:  # noqa: BLE001  # functions of the caller raise anything
                    return DecodeError(
                        f"cannot decode the {self._column} at partition {place[0]}, offset {place[1]}: {error}; "
                        f"it is {_shortened(value)}"
                    )
        return DecodeError(f"cannot decode a {self._column}: its decoder raised an error, but not a second time")

    def _mismatch(self, decoded: Sequence[Any], places: Sequence[Place], error: Exception) -> DecodeError:
        """The error for the first value that does not fit: into the given type, or beside the values before it."""
        import pyarrow as pa

        # A search by halves: inference needs the values before the one that does not fit.
        low, high = 0, len(decoded)
        while low < high:
            middle = (low + high) // 2
            try:
                pa.array(decoded[: middle + 1], type=self.type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as found:
                high, error = middle, found
            else:
                low = middle + 1
        partition, offset = places[min(low, len(places) - 1)]
        expected = "those before it" if self.type is None else f"the type {self.type}"
        return DecodeError(
            f"the {self._column} at partition {partition}, offset {offset} does not match {expected}: {error}; "
            f"set {self._column}_type, or decode the {self._column} as 'utf8' or with a function"
        )


def _utf8(value: bytes) -> str:
    return value.decode()


def _shortened(value: bytes) -> str:
    return repr(value) if len(value) <= _SHOWN_BYTES else f"{value[:_SHOWN_BYTES]!r}... ({len(value)} bytes)"
