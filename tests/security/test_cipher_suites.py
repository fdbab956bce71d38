"""Names of cipher suites."""

from __future__ import annotations

import ssl

import pytest

from moldau.security.cipher_suites import is_of_tls_1_3, openssl_name

NAMES = {
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}


@pytest.mark.parametrize(("iana", "openssl"), NAMES.items())
def test_names_of_tls_1_2(iana: str, openssl: str) -> None:
    assert openssl_name(iana) == openssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(f"{openssl}:@SECLEVEL=0")
    assert openssl in {suite["name"] for suite in context.get_ciphers()}


@pytest.mark.parametrize("name", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"])
def test_names_of_tls_1_3(name: str) -> None:
    assert is_of_tls_1_3(name)
    assert openssl_name(name) is None


@pytest.mark.parametrize("name", ["", "ECDHE-RSA-AES256-GCM-SHA384", "TLS_RSA", "tls_rsa_with_aes_256_gcm_sha384"])
def test_other_texts_are_no_names(name: str) -> None:
    assert not is_of_tls_1_3(name)
    assert openssl_name(name) is None
