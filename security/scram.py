"""SASL SCRAM (RFC 5802, RFC 7677) with SHA-256 and SHA-512, as Kafka uses it (KIP-84).

    client first    n,[a=authorization id],n=user,r=client nonce[,extensions]
    server first    r=client nonce + server nonce,s=salt,i=iterations
    client final    c=channel binding,r=the same nonce,p=proof
    server final    v=server signature

The server knows StoredKey and ServerKey, from which neither the password nor the client's key can be computed. It
compares in constant time. An unknown user gets a salt that is derived from the name, and fails where a wrong password
does, so that names cannot be probed. All failures have the same message.

Kafka's extensions follow the client's nonce. ``tokenauth=true`` authenticates with a delegation token (KIP-48): the
user is the id of the token, the password its HMAC, and the authenticated user is the owner of the token.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from .sasl import Identity, Job, SaslFailure, without_escapes

MAX_FIRST_BYTES: Final = 8192
"""The first message is kept until the second one arrives, and strangers decide how long that takes."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
"""The number of iterations that a new credential may have."""

_FIRST: Final = re.compile(r"n,(?:a=(?P<authzid>[^,]+))?,(?P<bare>(?:m=[^,]*,)?n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?P<ext>(?:,[A-Za-z]+=[^,]*)*))")  # fmt: skip  # noqa: E501
_FINAL: Final = re.compile(r"(?P<without_proof>c=(?P<binding>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]+=[^,]*)*),p=(?P<proof>[^,]+)")  # fmt: skip  # noqa: E501
_FAILED: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


class ScramMechanism(NamedTuple):
    """A mechanism; ``code`` is its number in requests and in UserScramCredentialRecord."""

    name: str
    code: int
    digest: str

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.digest, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.digest)


SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256")
SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512")
MECHANISMS: Final = {each.name: each for each in (SHA_256, SHA_512)}
MECHANISMS_BY_CODE: Final = {each.code: each for each in (SHA_256, SHA_512)}


class Credential(NamedTuple):
    """What the server knows of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "Credential([hidden])"


class TokenLogin(NamedTuple):
    """A delegation token that is valid now."""

    owner: str
    """The name of the principal that owns it."""
    expires_ms: int
    credential: Credential | Callable[[], Credential]
    """A function takes milliseconds: it computes the credential from the HMAC of the token."""


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi(password, salt, iterations) of RFC 5802."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """The credential of a salted password."""
    client_key = mechanism.hmac(salted, b"Client Key")
    server_key = mechanism.hmac(salted, b"Server Key")
    return Credential(salt, mechanism.hash(client_key), server_key, iterations)


class ScramExchange:
    """See the module docstring."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str], Credential | None],
        find_token: Callable[[str], TokenLogin | None] = lambda token_id: None,
        *,
        server_nonce: str,
        secret: bytes,
    ) -> None:
        """``find`` looks up a user, ``find_token`` a delegation token.

        ``secret`` is the server's, from which the salts of unknown users are derived.
        """
        self._mechanism = mechanism
        self._find = find
        self._find_token = find_token
        self._server_nonce = server_nonce
        self._secret = secret
        self._credential: Credential | None = None
        self._name = ""
        self._first = ""  # both first messages, of which the proof is made
        self._nonce = ""
        self._steps = 0
        self._token: TokenLogin | None = None
        self.identity: Identity | None = None

    def evaluate(self, token: bytes) -> bytes | Job:
        """See `sasl.SaslExchange`."""
        self._steps += 1
        if self._steps == 1 and len(token) > MAX_FIRST_BYTES:
            raise self._failure()
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise self._failure() from None
        if self._steps == 1:
            return self._server_first(message)
        if self._steps == 2:
            return self._server_final(message).encode()
        raise self._failure()

    def _server_first(self, message: str) -> bytes | Job:
        match = _FIRST.fullmatch(message)
        if match is None:
            raise self._failure()
        name = _name(match["user"])
        authorization_id = _name(match["authzid"]) if match["authzid"] else name
        extensions = dict(each.split("=", 1) for each in match["ext"].split(",") if each)
        if name is None or authorization_id != name:
            raise self._failure()
        self._name = name
        self._nonce = match["nonce"] + self._server_nonce
        bare = match["bare"]
        if extensions.get("tokenauth", "").lower() != "true":
            return self._challenge(bare, self._find(name))
        self._token = found = self._find_token(name)
        if found is None:
            return self._challenge(bare, None)
        if isinstance(found.credential, Credential):
            return self._challenge(bare, found.credential)
        derive = found.credential
        return lambda: self._challenge(bare, derive())

    def _challenge(self, bare: str, found: Credential | None) -> bytes:
        """The server's first message."""
        if found is not None and found.iterations < MIN_ITERATIONS:
            raise self._failure()
        self._credential = found
        shown = found if found is not None else self._made_up(self._name)
        answer = f"r={self._nonce},s={b64encode(shown.salt).decode()},i={shown.iterations}"
        self._first = f"{bare},{answer}"
        return answer.encode()

    def _server_final(self, message: str) -> str:
        match = _FINAL.fullmatch(message)
        mechanism = self._mechanism
        found = self._credential if self._credential is not None else self._made_up(self._name)
        try:
            proof = b64decode(match["proof"], validate=True) if match is not None else b""
        except (binascii.Error, ValueError):
            raise self._failure() from None
        if match is None or match["nonce"] != self._nonce or len(proof) != len(found.stored_key):
            raise self._failure()
        signed = f"{self._first},{match['without_proof']}".encode()
        signature = mechanism.hmac(found.stored_key, signed)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_equal = hmac.compare_digest(mechanism.hash(client_key), found.stored_key)
        if not is_equal or self._credential is None:
            raise self._failure()
        token = self._token
        self.identity = (
            Identity(self._name) if token is None else Identity(token.owner, token.expires_ms, by_token=True)
        )
        return f"v={b64encode(mechanism.hmac(found.server_key, signed)).decode()}"

    def _made_up(self, name: str) -> Credential:
        """What an unknown user gets: always the same for a name, and no password fits."""
        seed = self._mechanism.hmac(self._secret, name.encode())
        return Credential(seed[:16], self._mechanism.hash(seed), seed, MIN_ITERATIONS)

    def _failure(self) -> SaslFailure:
        return SaslFailure(_FAILED + self._mechanism.name)


def _name(text: str) -> str | None:
    """A name without its escapes; None if it is invalid."""
    if re.search(r"=(?!2C|3D)", text):
        return None
    return without_escapes(text)
