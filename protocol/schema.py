"""The building blocks of message declarations.

A message is a class whose attributes contain the specification of each field in Kafka's protocol: its type, its
versions, whether it may be null, its default, its tag.

    class FetchTopic(Struct):
        topic: str = string("0-12", ignorable=True)
        topic_id: bytes = uuid("13+", ignorable=True)
        partitions: list[FetchPartition] = array(FetchPartition, "0+")

`StructMeta` turns this into a slotted class with a keyword constructor in which every field has its default, equality
by value and a repr; type checkers see the same constructor. One class serves all versions: a field that is not in a
version keeps its default when decoding. When encoding, such a field must have its default or be `ignorable`.
`compiler.py` turns a declaration into code; this module does not read or write bytes.

Invariants:

* The order of declaration is the order on the wire. Tagged fields (KIP-482) are written after all others, by tag.
* Version ranges have Kafka's notation: "4-18", "12+", "3", "none". A field's range may be open; the message's own
  `versions` close it.
* A declaration is cheap to execute (about 20 microseconds per class), because a server imports dozens of them: the
  constructor is compiled when it is first called.
* A struct-typed field without arrays inside shares one read-only default. Most such fields are tagged and rarely set
  (`FetchResponse` has three of them per partition), and creating them would cost more than the rest of the struct. To
  set one, assign a new struct.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, dataclass_transform, final, overload

from .uuid import ZERO_UUID, uuid_to_str

T = TypeVar("T")
S = TypeVar("S", bound="Struct")

MAX_VERSION: Final = 0x7FFF
"""The upper end of an open version range: versions are int16."""


@final
class Versions:
    """A closed range of versions; empty when `lowest` is above `highest` ("none")."""

    __slots__ = ("highest", "lowest")

    def __init__(self, lowest: int, highest: int) -> None:
        self.lowest = lowest
        self.highest = highest

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __iter__(self) -> Any:
        return iter(range(self.lowest, self.highest + 1))

    def __bool__(self) -> bool:
        return self.lowest <= self.highest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versions) and (self.lowest, self.highest) == (other.lowest, other.highest)

    def __hash__(self) -> int:
        return hash((self.lowest, self.highest))

    def __repr__(self) -> str:
        return f"Versions({str(self)!r})"

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.highest == MAX_VERSION:
            return f"{self.lowest}+"
        return f"{self.lowest}-{self.highest}" if self.lowest != self.highest else str(self.lowest)


NO_VERSIONS: Final = Versions(0, -1)

_parsed: dict[str, Versions] = {"none": NO_VERSIONS}


def parse_versions(text: str) -> Versions:
    """The range for a text in Kafka's notation: "4-18", "12+", "3" or "none"."""
    versions = _parsed.get(text)
    if versions is None:
        if text.endswith("+"):
            versions = Versions(int(text[:-1]), MAX_VERSION)
        else:
            lowest, _, highest = text.partition("-")
            versions = Versions(int(lowest), int(highest or lowest))
        _parsed[text] = versions
    return versions


@final
class Field:
    """The declaration of one field. `type` is Kafka's name of the type, for an array that of its elements."""

    __slots__ = (
        "default",
        "flexible",
        "ignorable",
        "is_array",
        "name",
        "nullable",
        "struct",
        "tag",
        "type",
        "versions",
    )

    def __init__(
        self,
        type: str,
        versions: str,
        nullable: str = "none",
        default: Any = None,
        tag: int | None = None,
        ignorable: bool = False,
        struct: type[Struct] | None = None,
        is_array: bool = False,
        flexible: str | None = None,
    ) -> None:
        self.name = ""
        self.type = type
        self.versions = parse_versions(versions)
        self.nullable = parse_versions(nullable)
        self.default = default
        self.tag = tag
        self.ignorable = ignorable
        self.struct = struct
        self.is_array = is_array
        self.flexible = flexible

    def __repr__(self) -> str:
        type = f"[]{self.struct.__name__ if self.struct else self.type}" if self.is_array else self.type
        return f"<field {self.name}: {type} {self.versions}>"

    @property
    def is_mutable(self) -> bool:
        """Whether each message needs a separate default: for an array, or a struct that contains one."""
        if self.default is None:
            return False
        return self.is_array or (self.struct is not None and self.struct.is_mutable())

    def make_default(self) -> Any:
        """The value of a field that was not set."""
        if self.default is not UNSET:
            return self.default
        if self.is_array:
            return []
        assert self.struct is not None
        return self.struct() if self.struct.is_mutable() else self.struct.shared_default()


class _Unset:
    """The default of fields whose default is an empty array or a struct, which must not be shared."""

    def __repr__(self) -> str:
        return "..."


UNSET: Final = _Unset()


# Each specifier below returns a Field, but declares the type of the attribute's value. So type checkers treat the
# declaration `partition: int = int32("0+")` as an attribute with a default.


def _field(*args: Any, **kwargs: Any) -> Any:
    return Field(*args, **kwargs)


def boolean(versions: str, *, default: bool = False, tag: int | None = None, ignorable: bool = False) -> bool:
    """A byte: 0 is false, anything else is true."""
    value: bool = _field("bool", versions, default=default, tag=tag, ignorable=ignorable)
    return value


def int8(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    value: int = _field("int8", versions, default=default, tag=tag, ignorable=ignorable)
    return value


def int16(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    value: int = _field("int16", versions, default=default, tag=tag, ignorable=ignorable)
    return value


def uint16(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    value: int = _field("uint16", versions, default=default, tag=tag, ignorable=ignorable)
    return value


def int32(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    value: int = _field("int32", versions, default=default, tag=tag, ignorable=ignorable)
    return value


def int64(versions: str, *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    value: int = _field("int64", versions, default=default, tag=tag, ignorable=ignorable)
    return value


def float64(versions: str, *, default: float = 0.0, tag: int | None = None, ignorable: bool = False) -> float:
    value: float = _field("float64", versions, default=default, tag=tag, ignorable=ignorable)
    return value


def uuid(versions: str, *, tag: int | None = None, ignorable: bool = False) -> bytes:
    """16 bytes, see `protocol.uuid`."""
    value: bytes = _field("uuid", versions, default=ZERO_UUID, tag=tag, ignorable=ignorable)
    return value


@overload
def string(
    versions: str,
    *,
    default: str = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> str: ...
@overload
def string(
    versions: str,
    *,
    nullable: str,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
    flexible: str | None = None,
) -> str | None: ...
def string(versions: str, *, default: str | None = "", **facts: Any) -> str | None:
    """UTF-8 with a length of at most 32,767 bytes."""
    value: str | None = _field("string", versions, default=default, **facts)
    return value


@overload
def bytes_(versions: str, *, tag: int | None = None, ignorable: bool = False) -> bytes: ...
@overload
def bytes_(
    versions: str,
    *,
    nullable: str,
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> bytes | None: ...
def bytes_(versions: str, *, default: bytes | None = b"", **facts: Any) -> bytes | None:
    """Bytes with an int32 length."""
    value: bytes | None = _field("bytes", versions, default=default, **facts)
    return value


def record_batches(versions: str, *, nullable: str = "none") -> Any:
    """Record batches, which the protocol calls `records`.

    Decoded to a memoryview of the decoded buffer. When encoding, any object with a length is accepted and becomes a
    separate part (for example a range of a file, which the connection sends without reading it).
    """
    return _field("records", versions, nullable=nullable)


@overload
def struct(struct_type: type[S], versions: str, *, tag: int | None = None, ignorable: bool = False) -> S: ...
@overload
def struct(
    struct_type: type[S],
    versions: str,
    *,
    nullable: str,
    default: None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> S | None: ...
def struct(struct_type: type[S], versions: str, *, default: Any = UNSET, **facts: Any) -> S | None:
    """A nested struct."""
    value: S | None = _field("struct", versions, default=default, struct=struct_type, **facts)
    return value


@overload
def array(
    element: Callable[..., T],
    versions: str,
    *,
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T]: ...
@overload
def array(
    element: Callable[..., T],
    versions: str,
    *,
    nullable: str,
    default: list[T] | None = ...,
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T] | None: ...
def array(element: Callable[..., T], versions: str, *, default: Any = UNSET, **facts: Any) -> list[T] | None:
    """An array of structs, `array(FetchTopic, "0+")`, or of simple values, `array(int32, "0+")`."""
    if isinstance(element, StructMeta):
        value: list[T] | None = _field("struct", versions, default=default, struct=element, is_array=True, **facts)
    else:
        value = _field(_TYPE_OF_SPECIFIER[element], versions, default=default, is_array=True, **facts)
    return value


_TYPE_OF_SPECIFIER: dict[Callable[..., Any], str] = {
    int8: "int8",
    int16: "int16",
    int32: "int32",
    int64: "int64",
    string: "string",
    uuid: "uuid",
}

Buffer = bytes | bytearray | memoryview
"""The records of a request."""

Part = Sized
"""The records of a response: a buffer, or another object with a length that the connection can send."""


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Creates a slotted class from a declaration."""

    def __new__(metaclass, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **facts: Any) -> StructMeta:
        fields = [(key, value) for key, value in namespace.items() if type(value) is Field]
        for key, field in fields:
            field.name = key
            del namespace[key]
        namespace.setdefault("__slots__", tuple([key for key, _ in fields]))
        namespace.setdefault("FIELDS", tuple([field for _, field in fields]))
        return super().__new__(metaclass, name, bases, namespace, **facts)


class Struct(metaclass=StructMeta):
    """A group of fields. The module docstring describes its constructor and its shared defaults."""

    __slots__ = ("unknown_tagged_fields",)

    FIELDS: ClassVar[tuple[Field, ...]]

    if TYPE_CHECKING:
        unknown_tagged_fields: dict[int, bytes] | None = None

    def __init__(self, **values: Any) -> None:
        # The first call for each class replaces this method by one that is generated for the class, and calls that.
        cls = type(self)
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.FIELDS is not self.FIELDS:
            return NotImplemented
        for field in self.FIELDS:
            if getattr(self, field.name) != getattr(other, field.name):
                return False
        return (self.unknown_tagged_fields or None) == (other.unknown_tagged_fields or None)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The fields that differ from their defaults. Bytes are shown by length: they may be keys or passwords."""
        values = [
            f"{field.name}={_repr_value(field, value)}"
            for field in self.FIELDS
            if (value := getattr(self, field.name)) != field.make_default()
        ]
        if self.unknown_tagged_fields:
            values.append(f"unknown_tagged_fields={{{', '.join(map(str, self.unknown_tagged_fields))}}}")
        return f"{type(self).__name__}({', '.join(values)})"

    @classmethod
    def is_mutable(cls) -> bool:
        """Whether instances contain arrays, so that a shared default could be modified."""
        return any(field.is_mutable for field in cls.FIELDS)

    @classmethod
    def shared_default(cls: type[S]) -> S:
        """The instance with all defaults that is used for unset fields of this type; read-only."""
        default: S | None = cls.__dict__.get("_shared_default")
        if default is None:
            facts = {"__slots__": (), "FIELDS": cls.FIELDS}
            read_only: Any = StructMeta(cls.__name__, (cls, _ReadOnly), facts)
            default = object.__new__(read_only)
            for field in cls.FIELDS:
                object.__setattr__(default, field.name, field.make_default())
            object.__setattr__(default, "unknown_tagged_fields", None)
            cls._shared_default = default  # type: ignore[attr-defined]
        return default


class _ReadOnly:
    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        kind = type(self).__name__
        raise AttributeError(f"this {kind} is the shared default of its type: assign a new {kind} instead")

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: object) -> T:
        return self


class Message(Struct):
    """A struct that is sent by itself: it has its own versions, and the first flexible one (KIP-482)."""

    __slots__ = ()

    VERSIONS: ClassVar[Versions] = NO_VERSIONS
    STABLE_VERSIONS: ClassVar[Versions] = NO_VERSIONS
    FLEXIBLE_VERSIONS: ClassVar[Versions] = NO_VERSIONS

    def __init_subclass__(
        cls,
        *,
        versions: str = "none",
        flexible: str = "none",
        latest_version_unstable: bool = False,
    ) -> None:
        cls.VERSIONS = cls.STABLE_VERSIONS = parse_versions(versions)
        if latest_version_unstable:
            cls.STABLE_VERSIONS = Versions(cls.VERSIONS.lowest, cls.VERSIONS.highest - 1)
        cls.FLEXIBLE_VERSIONS = parse_versions(flexible)


class ApiMessage(Message):
    """A message of an API; for the records of the metadata log, the key is the record's type."""

    __slots__ = ()

    API_KEY: ClassVar[int]

    def __init_subclass__(
        cls,
        *,
        api_key: int = -1,
        versions: str = "none",
        flexible: str = "none",
        latest_version_unstable: bool = False,
    ) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible, latest_version_unstable=latest_version_unstable)
        cls.API_KEY = api_key


class Request(ApiMessage):
    """`listeners` states which roles serve the request: "broker", "controller"."""

    __slots__ = ()

    LISTENERS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls,
        *,
        api_key: int = -1,
        versions: str = "none",
        flexible: str = "none",
        listeners: tuple[str, ...] = (),
        latest_version_unstable: bool = False,
    ) -> None:
        super().__init_subclass__(
            api_key=api_key, versions=versions, flexible=flexible, latest_version_unstable=latest_version_unstable
        )
        cls.LISTENERS = listeners


class Response(ApiMessage):
    __slots__ = ()


def _compile_constructor(cls: type[Struct]) -> Callable[..., None]:
    """Generate `__init__` of a struct, with one keyword per field."""
    from .compiler import compile_function

    parameters, lines = [], []
    names: dict[str, Any] = {"UNSET": UNSET}
    for field in cls.FIELDS:
        value = field.name
        if field.default is UNSET and field.is_mutable:
            default = "UNSET"
            fresh = "[]" if field.is_array else f"{field.name}_type()"
            value = f"{fresh} if {field.name} is UNSET else {field.name}"
            names[f"{field.name}_type"] = field.struct
        else:
            default = f"{field.name}_default"
            names[default] = field.make_default()
        parameters.append(f"{field.name}={default}")
        lines.append(f"    self.{field.name} = {value}\n")
    parameters.append("unknown_tagged_fields=None")
    lines.append("    self.unknown_tagged_fields = unknown_tagged_fields\n")
    source = f"def __init__(self, *, {', '.join(parameters)}):\n{''.join(lines)}"
    function: Callable[..., None] = compile_function("__init__", source, f"<moldau {cls.__name__} constructor>", names)
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    return function


def _repr_value(field: Field, value: Any) -> str:
    if value is None:
        return "None"
    if field.type == "uuid":
        return f"[{', '.join(map(uuid_to_str, value))}]" if field.is_array else uuid_to_str(value)
    if field.type in ("bytes", "records"):
        return f"<{len(value)} bytes>"
    return repr(value)
