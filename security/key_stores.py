"""Key stores and trust stores: from the bytes of a file, or the text of a setting, to PEM that OpenSSL reads.

The format is recognized by the first bytes, not by the configured type, because Java accepts PKCS12 where JKS is
configured and the other way round:

- PEM: one private key, and the certificates in the order of the chain. Text around the blocks is ignored. The lines of
  a block may be separated by spaces, as in a value of several lines in a properties file (KIP-651).
- PKCS12: requires the package `cryptography` (``pip install "moldau[tls]"``). The password of the store decrypts it.
- JKS: with the standard library alone (`jks`). The password of the key is that of the store if it is not set. The first
  key is used.

Certificates of a PKCS12 trust store are trusted whether or not they carry keytool's attribute.
"""

from __future__ import annotations

import re
from base64 import b64decode, encodebytes
from typing import TYPE_CHECKING, Final, NamedTuple

from . import jks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_PEM_LINE: Final = 64
_DER_SEQUENCE: Final = b"\x30"


class KeyStoreError(Exception):
    """A store that cannot be used; the message states the reason and what to do, without secrets."""


class KeyStore(NamedTuple):
    """A private key and its certificate chain, both in PEM."""

    key: str
    chain: str
    password: str | None
    """Decrypts the key; None if it is not encrypted."""
    entries: int = 1
    """The keys, and the certificates without a key, of the store that it is from."""

    def __repr__(self) -> str:
        return "KeyStore([hidden])"


def key_store(data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    """The key of a store's bytes. Raises `KeyStoreError`."""
    if data.startswith(_DER_SEQUENCE):
        return _key_of_pkcs12(data, password)
    if data.startswith(jks.MAGIC):
        return _key_of_jks(data, password, key_password)
    text = _pem_text(data)
    if password is not None:
        raise KeyStoreError("a store in PEM has no password of its own: remove ssl.keystore.password")
    return pem_key_store(text, text, key_password)


def pem_key_store(key: str, chain: str, key_password: str | None) -> KeyStore:
    """A private key and a certificate chain in PEM, which may be the same text. Raises `KeyStoreError`."""
    keys = [block for label, block in _blocks(key) if label.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise KeyStoreError(f"it must contain one private key in PEM, but contains {len(keys)}")
    certificates = _certificates(chain)
    if not certificates:
        raise KeyStoreError("it contains no certificate in PEM")
    encrypted = "ENCRYPTED" in keys[0]
    if encrypted and key_password is None:
        raise KeyStoreError("the private key is encrypted: set ssl.key.password")
    return KeyStore(keys[0], "\n".join(certificates), key_password if encrypted else None)


def leaf_of(store: KeyStore) -> bytes:
    """The certificate of the key, which is the first one of its chain, in DER."""
    lines = _certificates(store.chain)[0].splitlines()
    return b64decode("".join(lines[1:-1]))


def trusted_certificates(data: bytes, password: str | None) -> str:
    """The certificates of a trust store's bytes, in PEM. Raises `KeyStoreError`."""
    if data.startswith(_DER_SEQUENCE):
        return _certificates_of_pkcs12(data, password)
    if data.startswith(jks.MAGIC):
        return _certificates_of_jks(data, password)
    text = _pem_text(data)
    if password is not None:
        raise KeyStoreError("a trust store in PEM has no password: remove ssl.truststore.password")
    return pem_trusted_certificates(text)


def pem_trusted_certificates(text: str) -> str:
    """The certificates in a text in PEM. Raises `KeyStoreError`."""
    certificates = _certificates(text)
    if not certificates:
        raise KeyStoreError("it contains no certificate in PEM")
    return "\n".join(certificates)


def _pem_text(data: bytes) -> str:
    if b"-----BEGIN " not in data:
        raise KeyStoreError("it is neither PEM, PKCS12 nor JKS")
    return data.decode("latin-1")


def _blocks(text: str) -> list[tuple[str, str]]:
    """The label and the whole text of each block in PEM, in the lines that OpenSSL requires."""
    return [(match[1], _in_lines(match[1], match[0], match[2])) for match in _BLOCK.finditer(text)]


def _in_lines(label: str, block: str, contents: str) -> str:
    if ":" in contents:
        return block  # headers of an older format for encrypted keys
    encoded = "".join(contents.split())
    lines = [encoded[start : start + _PEM_LINE] for start in range(0, len(encoded), _PEM_LINE)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"))


def _certificates(text: str) -> list[str]:
    return [block for label, block in _blocks(text) if label in ("CERTIFICATE", "X509 CERTIFICATE")]


def _key_of_pkcs12(data: bytes, password: str | None) -> KeyStore:
    if password is None:
        raise KeyStoreError("the password is missing: set ssl.keystore.password")
    store = _load_pkcs12(data, password)
    if store.key is None or store.cert is None:
        raise KeyStoreError("it contains no private key with a certificate")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    certificates = [store.cert, *store.additional_certs]
    return KeyStore(key, "".join(_pem_of(each.certificate.public_bytes) for each in certificates), None)


def _certificates_of_pkcs12(data: bytes, password: str | None) -> str:
    store = _load_pkcs12(data, password)
    certificates = [*store.additional_certs, *([] if store.cert is None else [store.cert])]
    if not certificates:
        raise KeyStoreError("it contains no certificate")
    return "".join(_pem_of(each.certificate.public_bytes) for each in certificates)


def _key_of_jks(data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    if password is None:
        raise KeyStoreError("the password is missing: set ssl.keystore.password")
    try:
        store = jks.load(data, password)
        keys = store.keys
        if not keys or not keys[0].chain:
            raise KeyStoreError("it contains no private key with a certificate")
        key = keys[0].decrypted(password if key_password is None else key_password)
    except jks.JksError as error:
        raise KeyStoreError(str(error)) from None
    chain = "".join(_pem("CERTIFICATE", each) for each in keys[0].chain)
    return KeyStore(_pem("PRIVATE KEY", key), chain, None, len(keys) + len(store.certificates))


def _certificates_of_jks(data: bytes, password: str | None) -> str:
    """Java also trusts the certificate of each key, without its chain."""
    try:
        store = jks.load(data, password)
    except jks.JksError as error:
        raise KeyStoreError(str(error)) from None
    certificates = [*store.certificates, *(key.chain[0] for key in store.keys if key.chain)]
    if not certificates:
        raise KeyStoreError("it contains no certificate")
    return "".join(_pem("CERTIFICATE", each) for each in certificates)


def _pem(label: str, der: bytes) -> str:
    return f"-----BEGIN {label}-----\n{encodebytes(der).decode()}-----END {label}-----\n"


def _pem_of(public_bytes: object) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    assert callable(public_bytes)
    pem = public_bytes(Encoding.PEM)
    assert isinstance(pem, bytes)
    return pem.decode()


def _load_pkcs12(data: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise KeyStoreError(
            'it is in the format PKCS12, which requires the package cryptography: pip install "moldau[tls]", '
            "or use PEM files"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise KeyStoreError("it cannot be decrypted: the password is wrong, or the file is damaged") from None
