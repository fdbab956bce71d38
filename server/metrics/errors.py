"""The errors in responses, by error code. NONE counts, too, as in Apache Kafka.

Each field `error_code` of a response counts, also those in its arrays. The function that reads them is built once for
each type of response, from the declaration of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from ...protocol.api import ApiKey, response_class
from ...protocol.errors import error_name

if TYPE_CHECKING:
    from ...protocol.schema import Struct

Count = Callable[[Any, dict[int, int]], None]


class CountedErrors:
    """The number of each error of an API version. See `requests.dispatch.ErrorCounts`."""

    __slots__ = ("_counter", "counts")

    def __init__(self, api_key: ApiKey) -> None:
        self.counts: dict[int, int] = {}
        self._counter = counter_of(response_class(api_key))

    def add(self, response: Any) -> None:
        """Count the errors in a response."""
        self._counter(response, self.counts)

    def by_name(self) -> Iterator[tuple[str, int]]:
        """The names of the errors, and their numbers."""
        for code, number in self.counts.copy().items():
            yield error_name(code), number


@cache
def counter_of(cls: type[Struct]) -> Count:
    """A function that counts the errors of a message of this type, and of its parts."""
    has_code = any(field.name == "error_code" and not field.is_array for field in cls.FIELDS)
    parts = [
        (field.name, field.is_array, counter_of(field.struct))
        for field in cls.FIELDS
        if field.struct is not None and _has_errors(field.struct)
    ]

    def count(message: Any, counts: dict[int, int]) -> None:
        if has_code:
            code = message.error_code
            counts[code] = counts.get(code, 0) + 1
        for name, is_array, count_part in parts:
            value = getattr(message, name)
            if is_array:
                for element in value or ():
                    count_part(element, counts)
            elif value is not None:
                count_part(value, counts)

    return count


def _has_errors(cls: type[Struct]) -> bool:
    return any(
        field.name == "error_code" or (field.struct is not None and _has_errors(field.struct)) for field in cls.FIELDS
    )
