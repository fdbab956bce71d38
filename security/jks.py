"""Key stores in Java's format JKS: their private keys, with certificate chains, and their trusted certificates.

All numbers are big-endian. A text is two bytes of length and modified UTF-8.

    magic FEEDFEED, version (1 or 2), number of entries
    each entry: kind (1 key, 2 certificate), alias, creation time
        key: an EncryptedPrivateKeyInfo, the number of certificates, the certificates of the chain
        certificate: one certificate
    SHA-1 of the password (UTF-16), "Mighty Aphrodite" and all bytes before it

A certificate has a type ("X.509", only in version 2) and its DER. A key is encrypted with a key stream of SHA-1: of the
password and a salt, then of the password and the previous digest. A digest of the password and the key follows it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from .der import OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, DerError, elements, object_identifier, only

MAGIC: Final = b"\xfe\xed\xfe\xed"

_KEY: Final = 1
_CERTIFICATE: Final = 2
_WHITENER: Final = b"Mighty Aphrodite"
_KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_SHA1_BYTES: Final = 20


class JksError(ValueError):
    """The bytes are no store, or the password is wrong."""


class KeyEntry(NamedTuple):
    """A private key, which is encrypted, and its certificates in DER."""

    encrypted: bytes
    chain: Sequence[bytes]

    def decrypted(self, password: str) -> bytes:
        """The private key as PKCS8 in DER. Raises `JksError`."""
        try:
            algorithm, protected = elements(only(self.encrypted, SEQUENCE))
            identifier = next(elements(only(algorithm.encoded, SEQUENCE)))
        except (DerError, StopIteration, ValueError):
            raise JksError("a private key is malformed") from None
        if identifier.tag != OBJECT_IDENTIFIER or object_identifier(identifier.contents) != _KEY_PROTECTOR:
            raise JksError("a private key is not encrypted in the way of JKS")
        data = protected.contents
        if protected.tag != OCTET_STRING or len(data) < 2 * _SHA1_BYTES:
            raise JksError("a private key is malformed")
        encoded = _encoded(password)
        digest, encrypted, check = data[:_SHA1_BYTES], data[_SHA1_BYTES:-_SHA1_BYTES], data[-_SHA1_BYTES:]
        key = bytearray()
        while len(key) < len(encrypted):
            digest = _sha1(encoded + digest)
            part = encrypted[len(key) : len(key) + _SHA1_BYTES]
            key += bytes(a ^ b for a, b in zip(digest, part, strict=False))
        if not hmac.compare_digest(_sha1(encoded + key), check):
            raise JksError("a private key cannot be decrypted: its password is wrong")
        return bytes(key)


class Store(NamedTuple):
    """The entries of a store, in their order."""

    keys: Sequence[KeyEntry]
    certificates: Sequence[bytes]


def load(data: bytes, password: str | None) -> Store:
    """The entries of a store. Without a password, its integrity is not checked, as in Java. Raises `JksError`."""
    if len(data) < len(MAGIC) + _SHA1_BYTES or not data.startswith(MAGIC):
        raise JksError("it is no store in the format JKS")
    contents, check = data[:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    if password is not None and not hmac.compare_digest(_sha1(_encoded(password) + _WHITENER + contents), check):
        raise JksError("the password is wrong, or the file is damaged")
    reader = _Reader(contents, len(MAGIC))
    version = reader.number(">I")
    if version not in (1, 2):
        raise JksError(f"its version is {version}, and not 1 or 2")
    keys: list[KeyEntry] = []
    certificates: list[bytes] = []
    for _ in range(reader.number(">I")):
        kind = reader.number(">I")
        reader.text()
        reader.number(">Q")
        if kind == _KEY:
            encrypted = reader.block()
            keys.append(KeyEntry(encrypted, [reader.certificate(version) for _ in range(reader.number(">I"))]))
        elif kind == _CERTIFICATE:
            certificates.append(reader.certificate(version))
        else:
            raise JksError(f"an entry has the kind {kind}, which is neither a key nor a certificate")
    return Store(keys, certificates)


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def number(self, form: str) -> int:
        (found,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(found)

    def block(self) -> bytes:
        return self._take(self.number(">I"))

    def text(self) -> bytes:
        return self._take(self.number(">H"))

    def certificate(self, version: int) -> bytes:
        if version == 2 and self.text() != b"X.509":
            raise JksError("a certificate is not X.509")
        return self._take(self.number(">I"))

    def _take(self, size: int) -> bytes:
        begin, self._position = self._position, self._position + size
        if self._position > len(self._data):
            raise JksError("it ends within an entry")
        return self._data[begin : self._position]


def _encoded(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
