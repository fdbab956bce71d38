"""Reading a setting under the type it has: ``config.int("num.partitions")``.

A class of its own, because in the class that has a method called ``int`` an annotation ``int`` means the method.
"""

import builtins
from abc import ABC, abstractmethod

from .definition import ConfigValue


class TypedAccess(ABC):
    """``get`` with a type; asking for the wrong one is a mistake in the code, found by the assertion."""

    __slots__ = ()

    @abstractmethod
    def get(self, name: builtins.str) -> ConfigValue:
        """The value under its name, whatever its type."""

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self.get(name)
        assert isinstance(value, builtins.bool), name
        return value

    def int(self, name: builtins.str) -> builtins.int:
        value = self.get(name)
        assert isinstance(value, builtins.int), name
        return value

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        return None if self.get(name) is None else self.int(name)

    def float(self, name: builtins.str) -> builtins.float:
        value = self.get(name)
        assert isinstance(value, builtins.float), name
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self.get(name)
        assert isinstance(value, builtins.str), name
        return value

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        return None if self.get(name) is None else self.str(name)

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        value = self.get(name)
        assert isinstance(value, tuple), name
        return value
