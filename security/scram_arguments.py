"""The argument of ``--add-scram``, as `kafka-storage format` has it: ``SCRAM-SHA-256=[name=alice,password=secret]``.

Further fields are ``salt`` and ``saltedpassword``, both in base64, and ``iterations``. A salted password needs its salt
and replaces the password. Errors do not contain passwords.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Final, NamedTuple

from .scram import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    Credential,
    ScramMechanism,
    credential,
    salted_password,
)

SALT_BYTES: Final = 24
_FORM: Final = re.compile(r"(?P<mechanism>[^=]+)=\[(?P<fields>.*)\]", re.DOTALL)
_FIELDS: Final = ("name", "password", "salt", "saltedpassword", "iterations")
# A password may contain commas and equal signs, but no comma that is followed by the name of a field.
_FIELD: Final = re.compile(rf"({'|'.join(_FIELDS)})=(.*?)(?=,(?:{'|'.join(_FIELDS)})=|$)", re.DOTALL)


class ArgumentError(ValueError):
    """The argument is not valid; the message has no secrets."""


class ScramUser(NamedTuple):
    """A user with a credential."""

    name: str
    mechanism: ScramMechanism
    credential: Credential


def parse_scram_user(text: str, random_bytes: Callable[[int], bytes]) -> ScramUser:
    """The user of an argument; without ``salt``, the salt is random. Raises `ArgumentError`."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ArgumentError("it is not written as SCRAM-SHA-256=[name=NAME,password=PASSWORD]")
    mechanism = MECHANISMS.get(form["mechanism"])
    if mechanism is None:
        raise ArgumentError(f"the mechanism must be one of {', '.join(MECHANISMS)}")
    fields = _fields(form["fields"])
    if not fields.get("name"):
        raise ArgumentError("the name is missing")
    if ("password" in fields) == ("saltedpassword" in fields):
        raise ArgumentError("it needs either password or saltedpassword")
    if fields.get("password") == "":
        raise ArgumentError("the password is empty, so everyone could log in")  # for example, of an unset variable
    if "saltedpassword" in fields and "salt" not in fields:
        raise ArgumentError("a saltedpassword needs its salt")
    iterations = _iterations(fields.get("iterations", str(MIN_ITERATIONS)))
    salt = _base64("salt", fields["salt"]) if "salt" in fields else random_bytes(SALT_BYTES)
    if "saltedpassword" in fields:
        salted = _base64("saltedpassword", fields["saltedpassword"])
    else:
        salted = salted_password(mechanism, fields["password"], salt, iterations)
    return ScramUser(fields["name"], mechanism, credential(mechanism, salted, salt, iterations))


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None:
            raise ArgumentError(f"the fields are {', '.join(_FIELDS)}, separated by commas")
        key = match[1]
        if key in fields:
            raise ArgumentError(f"the field {key} occurs twice")
        fields[key] = match[2].removeprefix('"').removesuffix('"') if match[2].startswith('"') else match[2]
        position = match.end() + 1
    return fields


def _iterations(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and MIN_ITERATIONS <= int(text[:9]) <= MAX_ITERATIONS):
        raise ArgumentError(f"the iterations must be a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _base64(name: str, text: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ArgumentError(f"the field {name} is not base64") from None
    if not data:
        raise ArgumentError(f"the field {name} is empty")
    return data
