"""The classes of `protocol.named_tuples` behave like those of `typing`."""

from __future__ import annotations

import inspect
import pickle
import typing

import pytest

from moldau.protocol import named_tuples


class Fast(named_tuples.NamedTuple):
    """A range."""

    start: int
    """Its first offset."""
    end: int = 7
    names: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        return self.end - self.start

    def moved(self, by: int) -> Fast:
        return self._replace(start=self.start + by, end=self.end + by)

    @classmethod
    def empty(cls) -> Fast:
        return cls(0, 0)


class Slow(typing.NamedTuple):
    """A range."""

    start: int
    end: int = 7
    names: tuple[str, ...] = ()


def test_fields_defaults_and_annotations_are_those_of_typing() -> None:
    assert Fast._fields == Slow._fields
    assert Fast._field_defaults == Slow._field_defaults
    assert typing.get_type_hints(Fast) == typing.get_type_hints(Slow)
    assert inspect.signature(Fast).parameters.keys() == inspect.signature(Slow).parameters.keys()
    assert (Fast.__doc__, Fast.__module__, Fast.__qualname__) == (Slow.__doc__, Slow.__module__, "Fast")
    assert repr(Fast(1)) == repr(Slow(1)).replace("Slow", "Fast")


def test_values_are_tuples() -> None:
    value = Fast(2)
    assert value == (2, 7, ()) == Slow(2)
    start, end, names = value
    assert (start, end, names, hash(value)) == (2, 7, (), hash(Slow(2)))
    with pytest.raises(AttributeError):
        Fast(2).start = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Fast()  # type: ignore[call-arg]
    assert not hasattr(value, "__dict__")


def test_methods_are_kept() -> None:
    assert Fast(2).length == 5
    assert Fast(2).moved(3) == Fast(5, 10)
    assert Fast.empty() == Fast(0, 0)


def test_values_are_pickled_by_the_name_of_their_class() -> None:
    copy = pickle.loads(pickle.dumps(Fast(1, 2, ("a",))))
    assert (type(copy), copy) == (Fast, Fast(1, 2, ("a",)))
