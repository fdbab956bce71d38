"""Names of certificates' subjects. The expected texts are those that Java prints for the same certificates."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from moldau.security import der
from moldau.security.distinguished_names import format_name, subject_name
from moldau.testing.authority import Authority


def name_of(*attributes: tuple[x509.ObjectIdentifier, str]) -> str:
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    return format_name(der.only(name.public_bytes(), der.SEQUENCE))


def test_the_last_name_is_first_and_has_no_spaces() -> None:
    name = name_of(
        (NameOID.COUNTRY_NAME, "CZ"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Bohemia"),
        (NameOID.LOCALITY_NAME, "Praha"),
        (NameOID.ORGANIZATION_NAME, "Vltava"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "people"),
        (NameOID.STREET_ADDRESS, "Na Kampe"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.USER_ID, "alice"),
        (NameOID.COMMON_NAME, "Alice"),
    )
    assert name == "CN=Alice,UID=alice,DC=example,STREET=Na Kampe,OU=people,O=Vltava,L=Praha,ST=Bohemia,C=CZ"


def test_attributes_without_a_keyword_are_hexadecimal() -> None:
    assert name_of((NameOID.COMMON_NAME, "alice"), (NameOID.EMAIL_ADDRESS, "a@b.cz")) == (
        "1.2.840.113549.1.9.1=#16066140622e637a,CN=alice"
    )
    assert name_of((NameOID.SERIAL_NUMBER, "42")) == "2.5.4.5=#13023432"


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        (',+"\\<>;', '\\,\\+\\"\\\\\\<\\>\\;'),
        ("a=b#c", "a\\=b\\#c"),
        (" a  b ", "\\ a  b\\ "),
        ("   ", "\\ \\ \\ "),
        ("Žižka", "Žižka"),
    ],
)
def test_special_characters_are_escaped(value: str, escaped: str) -> None:
    assert name_of((NameOID.COMMON_NAME, value)) == f"CN={escaped}"


def test_a_relative_name_of_several_attributes_keeps_their_order() -> None:
    relative = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "b")]
    )
    encoded = x509.Name([relative]).public_bytes()
    assert sorted(format_name(der.only(encoded, der.SEQUENCE)).split("+")) == ["CN=a", "UID=b"]


@pytest.mark.parametrize("tag", [0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b" a b ", r"\ a b\ "),
        (b"\xc5\xbelu\xc5\xa5", "\u017elu\u0165"),
        (b"a\xe9b", "a\ufffdb"),
        (b"\0a\0b", r"\00a\00b"),  # in particular, this is "ab" as a BMPString
    ],
)
def test_strings_of_the_usual_types_are_read_as_utf_8(tag: int, value: bytes, text: str) -> None:
    """As by Java's ``X500Principal``, with which all of these were compared."""
    assert format_name(common_name(tag, value)) == f"CN={text}"


@pytest.mark.parametrize("tag", [0x03, 0x04, 0x12, 0x19, 0x1A, 0x1C, 0x1D])
def test_values_of_other_types_are_hexadecimal(tag: int) -> None:
    assert format_name(common_name(tag, b"12 3")) == f"CN=#{tag:02x}0431322033"


def common_name(tag: int, value: bytes) -> bytes:
    """The contents of a Name with a common name in DER, whose value has a tag."""
    element = b"\x06\x03\x55\x04\x03" + bytes([tag, len(value)]) + value
    for outer in (0x30, 0x31):
        element = bytes([outer, len(element)]) + element
    return element


def test_the_subject_of_a_certificate_may_be_empty() -> None:
    authority = Authority()
    for subject, expected in ((x509.Name([]), ""), ("alice", "CN=alice")):
        certificate = x509.load_pem_x509_certificate(authority.issue(subject).certificate.encode())
        assert subject_name(certificate.public_bytes(Encoding.DER)) == expected


@given(st.binary(max_size=60))
def test_any_bytes_are_a_name_or_an_error(data: bytes) -> None:
    for parse in (format_name, subject_name):
        try:
            assert isinstance(parse(data), str)
        except der.DerError:
            continue


def test_a_truncated_certificate_is_an_error() -> None:
    pem = Authority().issue("alice").certificate
    encoded = x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.DER)
    for length in range(len(encoded)):
        with pytest.raises(der.DerError):
            subject_name(encoded[:length])


@pytest.mark.parametrize("oid", ["1.2.840.113549", "2.999.3", "0.9.2342.19200300.100.1.25", "2.5.4.3"])
def test_object_identifiers(oid: str) -> None:
    numbers = [int(number) for number in oid.split(".")]
    contents = b"".join(_base_128(number) for number in (40 * numbers[0] + numbers[1], *numbers[2:]))
    assert der.object_identifier(contents) == oid


def _base_128(number: int) -> bytes:
    encoded = [number & 0x7F]
    while number := number >> 7:
        encoded.insert(0, number & 0x7F | 0x80)
    return bytes(encoded)
