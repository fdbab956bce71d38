"""Typed access to settings: ``config.int("num.partitions")``.

A separate class, because in a class with a method called ``int`` the annotation ``int`` means the method.
"""

import builtins
from abc import ABC, abstractmethod

from .definition import ConfigValue


class TypedAccess(ABC):
    """``get`` with a type; an assertion detects a wrong type, which is an error in the code."""

    __slots__ = ()

    @abstractmethod
    def get(self, name: builtins.str) -> ConfigValue:
        """The value under its name, of any type."""

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
