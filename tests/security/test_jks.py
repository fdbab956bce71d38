"""Key stores in JKS, as keytool writes them."""

from __future__ import annotations

from base64 import b64decode

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from moldau.security import jks
from moldau.security.key_stores import KeyStoreError, key_store, trusted_certificates

# keytool -genkeypair -alias server -keyalg EC -groupname secp256r1 -storetype JKS -dname CN=localhost
# -storepass store-secret -keypass key-secret -validity 36500
KEY_STORE = b64decode(
    """
    /u3+7QAAAAIAAAABAAAAAQAGc2VydmVyAAABohtgiKUAAAB/MH0wDgYKKwYBBAEqAhEBAQUABGtwGleUyOy59tdNJ9VZAbuc9K16
    CVweHO85lcXcYt85czoimAW/V1tsXHZm0i6Rw0gDt7qIASjMBDbnsQAV1iQNcipe5hjf/QUeIjXP+ZmLAfdewaxiII/ZzcldbJA3
    N0Tlo0Ar6nBwDGigVAAAAAEABVguNTA5AAABRjCCAUIwgeigAwIBAgIJALGZbhSdnfcHMAoGCCqGSM49BAMCMBQxEjAQBgNVBAMT
    CWxvY2FsaG9zdDAgFw0yNjExMjcwNTAwNDBaGA8yMTI2MTEwMzA1MDA0MFowFDESMBAGA1UEAxMJbG9jYWxob3N0MFkwEwYHKoZI
    zj0CAQYIKoZIzj0DAQcDQgAEIbNS6UtBP+lUsvCrTogE9LQ2+UzZf+BUvdq+1eyBKT15UGlqojb9EBnbtE2OGIAMSnXeZzTzAET4
    wWtcR8+Rl6MhMB8wHQYDVR0OBBYEFGaqheE4HYKAuxBafj0JOeszSU8GMAoGCCqGSM49BAMCA0kAMEYCIQCTqrNVJuwu3foBt9hx
    wH3nrjatK+L0Rds3N8OvJcbOOQIhAJaH0Jnl7dxMTQFXErDjnXm2ItRMerYLYb4+HF0uktEf0cAn1DAcJuj8uIkc3nPwsJU+KTw=
    """
)
# keytool -importcert -alias trusted -storetype JKS -storepass store-secret, of the same certificate
TRUST_STORE = b64decode(
    """
    /u3+7QAAAAIAAAABAAAAAgAHdHJ1c3RlZAAAAaIbYKBdAAVYLjUwOQAAAUYwggFCMIHooAMCAQICCQCxmW4UnZ33BzAKBggqhkjO
    PQQDAjAUMRIwEAYDVQQDEwlsb2NhbGhvc3QwIBcNMjYxMTI3MDUwMDQwWhgPMjEyNjExMDMwNTAwNDBaMBQxEjAQBgNVBAMTCWxv
    Y2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCGzUulLQT/pVLLwq06IBPS0NvlM2X/gVL3avtXsgSk9eVBpaqI2/RAZ
    27RNjhiADEp13mc08wBE+MFrXEfPkZejITAfMB0GA1UdDgQWBBRmqoXhOB2CgLsQWn49CTnrM0lPBjAKBggqhkjOPQQDAgNJADBG
    AiEAk6qzVSbsLt36AbfYccB95642rSvi9EXbNzfDryXGzjkCIQCWh9CZ5e3cTE0BVxKw4515tiLUTHq2C2G+PhxdLpLRH8pMOUno
    EpPH4STsai0Zt0iscMPM
    """
)


def test_the_key_belongs_to_the_certificate() -> None:
    store = key_store(KEY_STORE, "store-secret", "key-secret")
    key = load_pem_private_key(store.key.encode(), None)
    certificate = load_pem_x509_certificate(store.chain.encode())
    assert key.public_key() == certificate.public_key()
    assert certificate.subject.rfc4514_string() == "CN=localhost"
    assert store.password is None


@pytest.mark.parametrize("password", ["store-secret", None])
def test_trusted_certificates(password: str | None) -> None:
    assert trusted_certificates(TRUST_STORE, password) == key_store(KEY_STORE, "store-secret", "key-secret").chain


def test_the_certificate_of_a_key_is_trusted() -> None:
    assert trusted_certificates(KEY_STORE, "store-secret") == trusted_certificates(TRUST_STORE, "store-secret")


@pytest.mark.parametrize(
    ("data", "password", "key_password", "problem"),
    [
        (KEY_STORE, None, None, r"set ssl\.keystore\.password"),
        (KEY_STORE, "wrong", "key-secret", "the password is wrong, or the file is damaged"),
        (KEY_STORE, "store-secret", None, "a private key cannot be decrypted: its password is wrong"),
        (KEY_STORE, "store-secret", "wrong", "a private key cannot be decrypted: its password is wrong"),
        (KEY_STORE[:-30], "store-secret", "key-secret", "damaged"),
        (KEY_STORE[:10], "store-secret", "key-secret", "no store"),
        (TRUST_STORE, "store-secret", None, "no private key"),
    ],
)
def test_unusable_key_stores(data: bytes, password: str | None, key_password: str | None, problem: str) -> None:
    with pytest.raises(KeyStoreError, match=problem):
        key_store(data, password, key_password)


@given(st.integers(0, len(KEY_STORE) - 1), st.integers(1, 255), st.booleans())
def test_damage_is_noticed(position: int, change: int, checked: bool) -> None:
    """Without the password, whose digest protects the file, any bytes must fail in an orderly way."""
    data = bytearray(KEY_STORE)
    data[position] ^= change
    if checked:
        with pytest.raises(jks.JksError):
            jks.load(bytes(data), "store-secret")
        return
    try:
        store = jks.load(bytes(data), None)
        for key in store.keys:
            key.decrypted("key-secret")
    except jks.JksError:
        return
