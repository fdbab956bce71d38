"""SASL OAUTHBEARER: messages of RFC 7628, claims, and signatures with the keys of a provider."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.jwt_claims import SignedRules, UnsignedRules, validate_signed, validate_unsigned
from moldau.security.jwt_signatures import ALGORITHMS, JwksError, ProviderKey, keys_of, verified
from moldau.security.oauthbearer import InvalidTokenError, OAuthBearerExchange, OAuthToken
from moldau.security.sasl import Identity, Rejection, SaslFailure

from .evaluation import evaluate

NOW_S = 1_700_000_000
NOW_MS = 1000 * NOW_S
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60}
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
EC_KEYS = {name: ec.generate_private_key(curve) for name, curve in CURVES.items()}


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(claims: object = CLAIMS, header: object = None, signature: str = "") -> str:
    return f"{part({'alg': 'none'} if header is None else header)}.{part(claims)}.{signature}"


def message(token: str, *, authzid: str = "", extensions: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


# -- messages ----------------------------------------------------------------------------------------------------------


class Exchange:
    """An exchange in which one token is valid."""

    def __init__(self, *, in_thread: bool = False, scope: str | None = None) -> None:
        self.log: list[str] = []  # the reasons of rejections

        def validate(token: str) -> OAuthToken:
            if token != "good":
                raise InvalidTokenError("it is not good", scope)
            return OAuthToken("alice", 1234)

        self.exchange = OAuthBearerExchange(validate, in_thread=in_thread)

    def send(self, data: bytes) -> bytes:
        answer = evaluate(self.exchange, data)
        if isinstance(answer, Rejection):
            self.log.append(answer.reason)
        return answer


@pytest.mark.parametrize(
    "data",
    [
        message("good"),
        message("good", authzid="a=alice"),
        message("good", extensions="traceId=123\x01other=a b\x01"),
        message("good").replace(b"Bearer", b"bEARER"),
        message("good").replace(b"Bearer ", b"Bearer   "),
    ],
)
def test_a_valid_token_completes_the_exchange(data: bytes) -> None:
    exchange = Exchange()
    assert exchange.send(data) == b""
    assert exchange.exchange.identity == Identity("alice", 1234)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x01", b"n,,\x01\x01", b"n,,", message("good")[:-1], message("good") + b"x", b"y" + message("good")[1:],
        message("good").replace(b"Bearer", b"Basic"), message("good").replace(b"auth", b"AUTH"),
        message("good", extensions="trace_id=1\x01"), message("good", extensions="a=\x01"), message(""),
        message("good", authzid="alice"), message("a b"), message("good").replace(b"good", b"go\xc3\xa4"),
    ],
)  # fmt: skip
def test_a_malformed_message_fails_immediately(data: bytes) -> None:
    exchange = Exchange()
    with pytest.raises(SaslFailure, match="Invalid OAUTHBEARER"):
        exchange.send(data)
    assert exchange.exchange.identity is None


def test_another_authorization_id_fails() -> None:
    with pytest.raises(SaslFailure, match="authorization id"):
        Exchange().send(message("good", authzid="a=bob"))


@pytest.mark.parametrize(
    ("scope", "answer"),
    [(None, b'{"status":"invalid_token"}'), ("read write", b'{"status":"insufficient_scope","scope":"read write"}')],
)
def test_an_invalid_token_is_described_and_ends_with_the_next_message(scope: str | None, answer: bytes) -> None:
    exchange = Exchange(scope=scope)
    assert exchange.send(message("bad")) == answer
    assert exchange.log == ["it is not good"]
    with pytest.raises(SaslFailure) as raised:
        exchange.send(b"\x01")
    assert str(raised.value) == answer.decode()
    assert exchange.exchange.identity is None


def test_a_better_token_is_accepted_after_an_invalid_one() -> None:
    exchange = Exchange()
    exchange.send(message("bad"))
    assert exchange.send(message("good")) == b""
    assert exchange.exchange.identity == Identity("alice", 1234)


def test_a_token_is_validated_in_a_thread() -> None:
    exchange = Exchange(in_thread=True)
    job = exchange.exchange.evaluate(message("good"))
    assert not isinstance(job, bytes)
    assert exchange.exchange.identity is None
    assert job() == b""
    assert exchange.exchange.identity is not None


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(message("bad"))), max_size=4))
def test_any_bytes_fail_without_another_error(tokens: list[bytes]) -> None:
    exchange = Exchange()
    for token in tokens:
        try:
            exchange.send(token)
        except SaslFailure:
            continue
    assert exchange.exchange.identity is None


# -- tokens without a signature ----------------------------------------------------------------------------------------


def test_an_unsigned_token() -> None:
    assert validate_unsigned(unsigned(), UnsignedRules(), NOW_MS) == OAuthToken("alice", NOW_MS + 60_000)
    without_iat = {"sub": "alice", "exp": NOW_S + 0.5}
    assert validate_unsigned(unsigned(without_iat), UnsignedRules(), NOW_MS).expires_ms == NOW_MS + 500


@pytest.mark.parametrize(
    "token",
    [
        "", "a.b", "a.b.c.d", "!.!.", unsigned(signature="c2ln"), unsigned(header={"alg": "HS256"}),
        unsigned(header={}),
        unsigned(header=[]), unsigned(b"no json"), unsigned(b"[" * 100_000), unsigned({**CLAIMS, "sub": 1}),
        unsigned({**CLAIMS, "sub": " "}), unsigned({**CLAIMS, "exp": NOW_S}), unsigned({**CLAIMS, "exp": "1"}),
        unsigned({**CLAIMS, "exp": True}), unsigned({**CLAIMS, "exp": None}), unsigned({**CLAIMS, "exp": float("inf")}),
        unsigned({**CLAIMS, "exp": float("nan")}), unsigned({**CLAIMS, "exp": 10**400}),
        unsigned({**CLAIMS, "iat": NOW_S + 1}), unsigned({**CLAIMS, "iat": "x"}), unsigned({"sub": "alice"}),
        unsigned({"exp": NOW_S + 60}), unsigned({**CLAIMS, "x": "y" * 70_000}),
    ],
    ids=lambda _: "token",
)  # fmt: skip
def test_invalid_unsigned_tokens(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        validate_unsigned(token, UnsignedRules(), NOW_MS)


def test_the_options_of_the_validator() -> None:
    rules = UnsignedRules("name", "scp", ("read", "write"), 1000)
    claims = {"name": "bob", "scp": ["write", "read", "more"], "iat": NOW_S + 1, "exp": NOW_S + 5}
    assert validate_unsigned(unsigned(claims), rules, NOW_MS).subject == "bob"
    assert validate_unsigned(unsigned(claims), rules, NOW_MS + 5999).subject == "bob"
    with pytest.raises(InvalidTokenError):
        validate_unsigned(unsigned(claims), rules, NOW_MS + 6000)
    with pytest.raises(InvalidTokenError) as raised:
        validate_unsigned(unsigned({**claims, "scp": "read"}), rules, NOW_MS)
    assert raised.value.missing_scope == "read write"


# -- signatures --------------------------------------------------------------------------------------------------------


def jwk(key: Any, **fields: str) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    found: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    return {**found, **fields}


def jwks(*keys: dict[str, Any]) -> list[ProviderKey]:
    return keys_of(json.dumps({"keys": keys}).encode())


def signed(key: Any = RSA_KEY, algorithm: str = "RS256", claims: dict[str, Any] = CLAIMS, **headers: Any) -> str:
    return jwt.encode(claims, key, algorithm=algorithm, headers=headers)


KEYS = jwks(
    jwk(RSA_KEY, kid="rsa"), jwk(OTHER_RSA_KEY, kid="other"), *(jwk(key, kid=name) for name, key in EC_KEYS.items())
)


def find(key_id: str | None) -> list[ProviderKey]:
    return KEYS if key_id is None else [key for key in KEYS if key.key_id == key_id]


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("named", [True, False])
def test_each_algorithm_with_public_keys(algorithm: str, named: bool) -> None:
    key = EC_KEYS.get(algorithm, RSA_KEY)
    headers: dict[str, Any] = {"kid": algorithm if algorithm in EC_KEYS else "rsa"} if named else {}
    assert json.loads(verified(signed(key, algorithm, **headers), find)) == CLAIMS


@pytest.mark.parametrize(
    "token",
    [
        signed(kid="other"), signed(kid="unknown"), signed(kid="ES256"), signed()[:-4] + "AAAA",
        signed(EC_KEYS["ES384"], "ES384", kid="ES256"), unsigned(), unsigned(header={"alg": "None"}),
        jwt.encode(CLAIMS, "a secret of more than thirty-two bytes", algorithm="HS256"),
        signed(crit=["x"], x=1), unsigned(header={"alg": "RS256", "kid": 5}), unsigned(header={"alg": ["RS256"]}),
        unsigned(header={"alg": "RS256"}, signature="!"), signed(rsa.generate_private_key(65537, 2048)),
    ],
    ids=lambda _: "token",  # they are random
)  # fmt: skip
def test_signatures_that_are_not_valid(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        verified(token, find)


def test_a_public_key_is_no_secret() -> None:
    """A token that is signed by HMAC with the text of the public key must not be accepted."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    import hashlib
    import hmac

    head = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(CLAIMS)}"
    token = f"{head}.{part(hmac.digest(pem, head.encode(), hashlib.sha256))}"
    with pytest.raises(InvalidTokenError, match="is not accepted"):
        verified(token, find)


def test_which_keys_of_a_document_are_used() -> None:
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    private: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY))
    ignored = [
        jwk(RSA_KEY, use="enc"), {**jwk(RSA_KEY), "key_ops": ["sign"]}, jwk(small), private,
        {"kty": "oct", "k": "AAAA"},
        {"kty": "RSA"}, {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"}, {"kty": "RSA", "n": 1, "e": "AQAB"}, {},
    ]  # fmt: skip
    assert jwks(*ignored) == []
    (key,) = jwks(jwk(RSA_KEY, use="sig", alg="PS256", kid="a"))
    assert (key.key_id, key.algorithm) == ("a", "PS256")
    with pytest.raises(InvalidTokenError):
        verified(signed(), lambda _: [key])
    assert verified(signed(algorithm="PS256"), lambda _: [key])


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": {}}', b"\xff", b"[" * 100_000])
def test_documents_without_keys(data: bytes) -> None:
    with pytest.raises(JwksError):
        keys_of(data)


# -- claims of signed tokens -------------------------------------------------------------------------------------------

RULES = SignedRules(audiences=("kafka", "moldau"), issuer="https://provider.example")
SIGNED_CLAIMS = {**CLAIMS, "aud": "kafka", "iss": "https://provider.example"}


def validate(rules: SignedRules = RULES, now_ms: int = NOW_MS, **changes: Any) -> OAuthToken:
    claims = {name: value for name, value in (SIGNED_CLAIMS | changes).items() if value is not None}
    return validate_signed(signed(claims=claims), rules, now_ms, lambda token: verified(token, find))


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"aud": ["other", "moldau"]}, {"iat": NOW_S + 30}, {"exp": NOW_S - 29, "iat": 0}, {"nbf": NOW_S + 30},
        {"scope": "a b"}, {"scope": ["a", "b"]}, {"scope": 5}, {"iat": NOW_S + 60},
    ],
)  # fmt: skip
def test_claims_that_are_accepted(changes: dict[str, Any]) -> None:
    assert validate(**changes).subject == "alice"


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": None}, {"aud": "other"}, {"aud": []}, {"aud": {}}, {"aud": [["kafka"]]}, {"iss": None},
        {"iss": "https://provider.example/"}, {"iat": None}, {"iat": NOW_S + 61}, {"exp": None},
        {"exp": NOW_S - 30, "iat": 0},
        {"nbf": NOW_S + 31}, {"nbf": "soon"}, {"sub": None}, {"sub": " "}, {"sub": ["alice"]}, {"scope": " "},
        {"scope": ["a", " "]}, {"scope": ["a", "a"]}, {"scope": ["a", " a"]}, {"scope": [1]},
    ],
)  # fmt: skip
def test_claims_that_are_not_accepted(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidTokenError):
        validate(**changes)


def test_other_names_of_claims_and_another_skew() -> None:
    rules = SignedRules("client_id", "scp", clock_skew_ms=0)
    assert validate(rules, client_id="app", aud=None, iss=None, scp=["a"]).subject == "app"
    with pytest.raises(InvalidTokenError):
        validate(rules, client_id="app", exp=NOW_S)
    with pytest.raises(InvalidTokenError):
        validate(rules, client_id="app", scp=["a", "a"])
