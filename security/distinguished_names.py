"""The subject of a certificate in the form of Java's ``X500Principal.getName``, which Kafka's principals have.

It is RFC 2253 with Java's choices:

- The last RDN is first, without spaces around the commas. RDNs of several attributes keep their order, joined by ``+``.
- Only CN, C, O, OU, L, ST, STREET, DC and UID have keywords. Any other attribute is its OID and ``#`` with the
  hexadecimal DER of the value.
- So is a value that is not one of the usual strings. Those are read as UTF-8, whatever their type.
- A backslash precedes each of ``, + " \\ < > ; = #`` and a space at the beginning or the end. A zero is ``\\00``.
"""

from __future__ import annotations

from typing import Final

from . import der

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_STRINGS: Final = frozenset(
    {
        0x0C,  # UTF8String
        0x13,  # PrintableString
        0x14,  # TeletexString
        0x16,  # IA5String
        0x1B,  # GeneralString
        0x1E,  # BMPString
    }
)
_ESCAPED: Final = frozenset(',+"\\<>;=#')


def subject_name(certificate: bytes) -> str:
    """The name of a certificate's subject, which may be empty. Raises `der.DerError`."""
    return format_name(der.subject_of(certificate))


def format_name(contents: bytes) -> str:
    """The contents of a Name in DER, as text."""
    names = []
    for rdn in der.elements(contents):
        if rdn.tag != der.SET:
            raise der.DerError("a relative distinguished name is not a SET")
        names.append("+".join(_attribute(attribute) for attribute in der.elements(rdn.contents)))
    return ",".join(reversed(names))


def _attribute(element: der.Element) -> str:
    parts = list(der.elements(element.contents))
    if len(parts) != 2 or parts[0].tag != der.OBJECT_IDENTIFIER:
        raise der.DerError("an attribute is not a type and a value")
    oid, value = der.object_identifier(parts[0].contents), parts[1]
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or oid}=#{value.encoded.hex()}"
    return f"{keyword}={_escape(value.contents.decode('utf-8', 'replace'))}"


def _escape(value: str) -> str:
    escaped = ["\\" + character if character in _ESCAPED else character for character in value]
    first = len(value) - len(value.lstrip(" "))
    last = len(value.rstrip(" "))
    for index, character in enumerate(value):
        if character == " " and (index < first or index >= last):
            escaped[index] = "\\ "
    return "".join(escaped).replace("\0", "\\00")
