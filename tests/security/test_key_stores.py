"""Key stores and trust stores in PEM and PKCS12."""

from __future__ import annotations

import sys

import pytest

from moldau.security.key_stores import (
    KeyStoreError,
    key_store,
    leaf_of,
    pem_key_store,
    pem_trusted_certificates,
    trusted_certificates,
)
from moldau.server.network.tls import server_context
from moldau.testing.authority import Authority

AUTHORITY = Authority()
ISSUED = AUTHORITY.issue("alice")
ISSUED_PKCS12 = ISSUED.pkcs12("secret")


def lines(pem: str) -> list[str]:
    return pem.split()


def test_pem_with_text_around_the_blocks() -> None:
    text = f"Bag Attributes\n{ISSUED.certificate}subject=/CN=x\n{AUTHORITY.certificate}{ISSUED.key}the end"
    store = key_store(text.encode(), None, "an unused password")
    assert lines(store.key) == lines(ISSUED.key)
    assert lines(store.chain) == lines(ISSUED.certificate + AUTHORITY.certificate)
    assert store.password is None


@pytest.mark.parametrize("separator", [" ", "  \t", "\r\n", ""])
@pytest.mark.parametrize("encrypted", [False, True])
def test_lines_of_pem_may_be_separated_by_spaces(separator: str, encrypted: bool) -> None:
    """As in a properties file whose lines are continued. OpenSSL must be able to read the result."""
    issued = AUTHORITY.server()
    key = issued.encrypted_key("secret") if encrypted else issued.key
    written, chain, trusted = (separator.join(t.split("\n")) for t in (key, issued.certificate, AUTHORITY.certificate))
    store = pem_key_store(written, chain, "secret" if encrypted else None)
    versions = ("TLSv1.2", "TLSv1.3")
    server_context(
        store, trusted=pem_trusted_certificates(trusted), client_auth="required", versions=versions, ciphers=None
    )
    assert leaf_of(store) == leaf_of(pem_key_store(key, issued.certificate, "secret" if encrypted else None))


def test_a_key_with_headers_keeps_its_lines() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: x\n\nabc=\n-----END RSA PRIVATE KEY-----"
    assert pem_key_store(key, AUTHORITY.certificate, "secret").key == key


def test_an_encrypted_key_needs_its_password() -> None:
    key = ISSUED.encrypted_key("secret")
    assert pem_key_store(key, ISSUED.certificate, "secret").password == "secret"
    with pytest.raises(KeyStoreError, match=r"set ssl\.key\.password"):
        pem_key_store(key, ISSUED.certificate, None)


def test_pkcs12_has_the_key_and_its_chain() -> None:
    store = key_store(ISSUED.pkcs12("secret"), "secret", None)
    assert lines(store.key) == lines(ISSUED.key)
    assert lines(store.chain) == lines(ISSUED.certificate)


def test_a_trust_store_in_either_format() -> None:
    assert lines(trusted_certificates(AUTHORITY.pkcs12("secret"), "secret")) == lines(AUTHORITY.certificate)
    assert lines(trusted_certificates(AUTHORITY.certificate.encode(), None)) == lines(AUTHORITY.certificate)
    assert lines(pem_trusted_certificates(AUTHORITY.certificate * 2)) == lines(AUTHORITY.certificate * 2)


@pytest.mark.parametrize(
    ("data", "password", "problem"),
    [
        (b"", None, "neither PEM, PKCS12 nor JKS"),
        (b"\xfe\xed\xfe\xed\0\0\0\2", "secret", "no store in the format JKS"),
        (ISSUED.pkcs12("secret"), "wrong", "the password is wrong"),
        (ISSUED.pkcs12("secret")[:-40], "secret", "the file is damaged"),
        (ISSUED.pkcs12("secret"), None, r"set ssl\.keystore\.password"),
        (AUTHORITY.pkcs12("secret"), "secret", "no private key"),
        (ISSUED.key.encode(), None, "no certificate"),
        (ISSUED.certificate.encode(), None, "contains 0"),
        ((ISSUED.pem + ISSUED.key).encode(), None, "contains 2"),
        (ISSUED.pem.encode(), "secret", r"remove ssl\.keystore\.password"),
    ],
)
def test_unusable_stores(data: bytes, password: str | None, problem: str) -> None:
    with pytest.raises(KeyStoreError, match=problem):
        key_store(data, password, None)


def test_pkcs12_without_the_package_states_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(KeyStoreError, match=r'pip install "moldau\[tls\]"'):
        key_store(ISSUED_PKCS12, "secret", None)


def test_a_key_store_does_not_show_its_secrets() -> None:
    assert "PRIVATE" not in repr(key_store(ISSUED.pem.encode(), None, None))
