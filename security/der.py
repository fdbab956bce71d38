"""The elements of DER that a certificate's subject and its alternative names consist of (X.690).

An element is ``tag, length, contents``. Only tags of one byte and definite lengths occur in certificates. OpenSSL has
already parsed the bytes, so any irregularity is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

INTEGER = 0x02
OCTET_STRING = 0x04
OBJECT_IDENTIFIER = 0x06
SEQUENCE = 0x30
SET = 0x31
EXPLICIT_0 = 0xA0
EXPLICIT_3 = 0xA3

_SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"


class DerError(ValueError):
    """The bytes are not DER, or not the expected element."""


class Element(NamedTuple):
    """One element; ``encoded`` are all its bytes."""

    tag: int
    contents: bytes
    encoded: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements in ``data``, one after the other."""
    position = 0
    while position < len(data):
        element = _element_at(data, position)
        yield element
        position += len(element.encoded)


def only(data: bytes, tag: int) -> bytes:
    """The contents of the element with this tag that ``data`` consists of."""
    found = list(elements(data))
    if len(found) != 1 or found[0].tag != tag:
        raise DerError(f"expected one element with tag {tag:#x}")
    return found[0].contents


def object_identifier(contents: bytes) -> str:
    """The contents of an OBJECT IDENTIFIER in dotted form: ``2.5.4.3``."""
    if not contents or contents[-1] & 0x80:
        raise DerError("an object identifier ends within a number")
    numbers: list[int] = []
    number = 0
    for byte in contents:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def subject_of(certificate: bytes) -> bytes:
    """The contents of the subject's Name in a certificate (RFC 5280, section 4.1): a SEQUENCE of SETs."""
    fields = _fields_of(certificate)
    if len(fields) < 5 or fields[4].tag != SEQUENCE:  # serial number, algorithm, issuer, validity, subject
        raise DerError("expected a subject")
    return fields[4].contents


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """The subject's alternative names in a certificate, each as an encoded GeneralName (RFC 5280, section 4.2.1.6)."""
    for field in _fields_of(certificate)[6:]:  # after the public key: unique identifiers and the extensions
        if field.tag != EXPLICIT_3:
            continue
        for extension in elements(only(field.contents, SEQUENCE)):
            parts = list(elements(extension.contents))
            if len(parts) < 2 or parts[0].tag != OBJECT_IDENTIFIER or parts[-1].tag != OCTET_STRING:
                raise DerError("an extension is not a type and a value")
            if object_identifier(parts[0].contents) == _SUBJECT_ALTERNATIVE_NAME:
                return frozenset(name.encoded for name in elements(only(parts[-1].contents, SEQUENCE)))
    return frozenset()


def _fields_of(certificate: bytes) -> list[Element]:
    """The fields of a certificate without its version."""
    parts = list(elements(only(certificate, SEQUENCE)))
    if not parts or parts[0].tag != SEQUENCE:
        raise DerError("expected a certificate")
    fields = list(elements(parts[0].contents))
    if fields and fields[0].tag == EXPLICIT_0:  # the version; absent in version 1
        del fields[0]
    return fields


def _element_at(data: bytes, start: int) -> Element:
    try:
        tag, first = data[start], data[start + 1]
        begin = start + 2
        length = first
        if first & 0x80:
            size = first & 0x7F
            begin += size
            if not 1 <= size <= 4 or begin > len(data):
                raise DerError("an element has no valid length")
            length = int.from_bytes(data[begin - size : begin], "big")
    except IndexError:
        raise DerError("the bytes end within an element") from None
    if tag & 0x1F == 0x1F:
        raise DerError("an element has a tag of several bytes")
    end = begin + length
    if end > len(data):
        raise DerError("the bytes end within an element")
    return Element(tag, data[begin:end], data[start:end])
