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


@pytest.mark.parametrize(("tag", "encoding"), [(0x0C, "utf-8"), (0x1C, "utf-32-be"), (0x1E, "utf-16-be")])
def test_all_kinds_of_strings_are_decoded(tag: int, encoding: str) -> None:
    attribute = _element(der.OBJECT_IDENTIFIER, bytes([0x55, 4, 3])) + _element(tag, "řeka".encode(encoding))
    assert format_name(_element(der.SET, _element(der.SEQUENCE, attribute))) == "CN=řeka"


def _element(tag: int, contents: bytes) -> bytes:
    return bytes([tag, len(contents)]) + contents


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
