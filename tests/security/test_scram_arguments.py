"""The argument of ``--add-scram``."""

from __future__ import annotations

from base64 import b64encode

import pytest

from moldau.security.scram import SHA_256, SHA_512, credential, salted_password
from moldau.security.scram_arguments import ArgumentError, parse_scram_user


def random_bytes(count: int) -> bytes:
    return b"x" * count


@pytest.mark.parametrize("password", ["secret", "a,b=c", "[x]", "ž", '"quoted'])
def test_a_password(password: str) -> None:
    user = parse_scram_user(f"SCRAM-SHA-512=[name=alice,password={password},iterations=5000]", random_bytes)
    expected = password.removeprefix('"')
    salted = salted_password(SHA_512, expected, b"x" * 24, 5000)
    assert user == ("alice", SHA_512, credential(SHA_512, salted, b"x" * 24, 5000))


def test_a_salted_password() -> None:
    salted = salted_password(SHA_256, "secret", b"salt", 4096)
    text = f"saltedpassword={b64encode(salted).decode()},salt={b64encode(b'salt').decode()}"
    user = parse_scram_user(f"SCRAM-SHA-256=[name=alice,{text}]", random_bytes)
    assert user == ("alice", SHA_256, credential(SHA_256, salted, b"salt", 4096))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-256",
        "SCRAM-SHA-256=name=a,password=SECRET",
        "SCRAM-SHA-1=[name=a,password=SECRET]",
        "SCRAM-SHA-256=[password=SECRET]",
        "SCRAM-SHA-256=[name=,password=SECRET]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=]",
        'SCRAM-SHA-256=[name=a,password=""]',
        "SCRAM-SHA-256=[name=a,password=SECRET,saltedpassword=AAAA,salt=AAAA]",
        "SCRAM-SHA-256=[name=a,saltedpassword=AAAA]",
        "SCRAM-SHA-256=[name=a,saltedpassword=!,salt=AAAA]",
        "SCRAM-SHA-256=[name=a,saltedpassword=,salt=AAAA]",
        "SCRAM-SHA-256=[name=a,password=SECRET,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=SECRET,iterations=16385]",
        "SCRAM-SHA-256=[name=a,password=SECRET,iterations=x]",
        "SCRAM-SHA-256=[name=a,name=b,password=SECRET]",
        "SCRAM-SHA-256=[user=a,password=SECRET]",
    ],
)
def test_invalid_arguments(text: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        parse_scram_user(text, random_bytes)
    assert "SECRET" not in str(raised.value)
