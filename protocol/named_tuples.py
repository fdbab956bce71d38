"""`typing.NamedTuple` without its checks at runtime, for the modules that every start imports.

`typing.NamedTuple` compiles the annotation of each field in order to check that it could be a type, which takes two
thirds of the time of creating the class. A start of the server creates about 60 such classes. mypy checks the
annotations instead, and sees `typing.NamedTuple` itself. Classes with type parameters need `typing.NamedTuple`.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _Meta(type):
        """Replaces a class statement by a class of `collections.namedtuple` with the same fields and attributes."""

        def __new__(meta, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(meta, name, bases, namespace)
            fields = namespace.pop("__annotations__")
            defaults = [namespace.pop(field) for field in fields if field in namespace]
            cls = collections.namedtuple(name, fields, defaults=defaults, module=namespace.pop("__module__"))
            cls.__annotations__ = fields
            for key, value in namespace.items():
                setattr(cls, key, value)
            return cls

    class NamedTuple(metaclass=_Meta):
        """The base in a class statement. Fields with defaults come last, which mypy checks."""
