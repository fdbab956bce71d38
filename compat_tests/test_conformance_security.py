"""`moldau conformance` through TLS and SASL, against Apache Kafka; `test_conformance_secured` has Moldau's cases."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.conformance.check import Check
from moldau.conformance.exchange import Recorder
from moldau.conformance.sasl import MECHANISMS, AuthenticationError, Credentials, authenticator
from moldau.conformance.target import Security, Target
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.certificates import certificate
from moldau.testing.full_run import first_of
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

PASSWORD = 'se=cr,et "1"'
USER = "an=n,1"
LISTENERS = {"SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "TLS": "SSL", "MUTUAL": "SSL", "SHORT": "SASL_PLAINTEXT"}
SESSION_SECONDS = 2.0
_SCRAM = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_ITERATIONS = 8192
COMMAND_TIMEOUT_S = 300.0
IN_EACH_RUN = {("SASL", "PLAIN"), ("BOTH", "SCRAM-SHA-512")}


class Secured(NamedTuple):
    kafka: ApacheKafka
    certificate: Path
    password_file: Path


def config(pem: Path) -> dict[str, str]:
    """The settings of the listeners. Backslashes are for the format of properties, quotes for that of JAAS."""
    quoted = PASSWORD.replace('"', '\\\\"')
    # The user of PLAIN is part of the name of an option, which cannot have all characters.
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="{quoted}";'
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    found = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pem),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.short.plain.connections.max.reauth.ms": str(int(SESSION_SECONDS * 1000)),
    }
    for listener in ("sasl", "both", "short"):
        for mechanism in MECHANISMS:
            module = plain if mechanism == "PLAIN" else scram
            found[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = module
    return found


@pytest.fixture(scope="module")
def secured(both_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("security")
    pem, password_file = certificate(folder), folder / "password"
    password_file.write_text(f"{PASSWORD}\n")
    with ApacheKafka(config(pem), listeners=LISTENERS) as kafka:
        add_scram_users(kafka.bootstrap_servers)
        yield Secured(kafka, pem, password_file)


def add_scram_users(address: str) -> None:
    salt = b"some salt"
    with WireClient(address) as wire:
        for number, algorithm in _SCRAM.values():
            salted = hashlib.pbkdf2_hmac(algorithm, PASSWORD.encode(), salt, _ITERATIONS)
            added = ScramCredentialUpsertion(
                name=USER, mechanism=number, iterations=_ITERATIONS, salt=salt, salted_password=salted
            )
            answer = wire.call(AlterUserScramCredentialsRequest(upsertions=[added]))
            assert [each.error_code for each in answer.results] == [ErrorCode.NONE], answer


def user(mechanism: str) -> str:
    return "ann" if mechanism == "PLAIN" else USER


def target(secured: Secured, listener: str, mechanism: str = "PLAIN", password: str = PASSWORD) -> Target:
    credentials = Credentials(mechanism, user(mechanism), password)
    return Target(secured.kafka.address_of(listener), Security(authenticate=authenticator(credentials)))


def command(*arguments: str) -> tuple[int, str]:
    """The exit code and the output of `moldau conformance`."""
    ran = subprocess.run(
        [sys.executable, "-m", "moldau", "conformance", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert "Traceback" not in ran.stderr
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        pytest.param(listener, mechanism, marks=[] if (listener, mechanism) in IN_EACH_RUN else pytest.mark.full)
        for listener in ("SASL", "BOTH")
        for mechanism in MECHANISMS
    ],
)
def test_cases_pass_with_sasl(secured: Secured, tmp_path: Path, listener: str, mechanism: str) -> None:
    options = ["--sasl-mechanism", mechanism, "--username", user(mechanism), f"--password-file={secured.password_file}"]
    if listener == "BOTH":
        options += ["--tls-ca", str(secured.certificate)]
    report = tmp_path / "report.json"
    address = secured.kafka.address_of(listener)

    def passed() -> str | None:
        code, output = command(address, *options, "--case", "produce.exchange", f"--json={report}")
        return output if code == 0 else None

    # A new SCRAM user is known a moment after the response.
    output = wait_until(passed, f"passing cases at {address} with {mechanism}", seconds=COMMAND_TIMEOUT_S)
    assert re.search(r"^11 passed", output, re.MULTILINE), output


def test_cases_pass_with_tls(secured: Secured) -> None:
    address = secured.kafka.address_of("TLS")
    code, output = command(address, "--tls-ca", str(secured.certificate), "--case", "produce.exchange")
    assert (code, "11 passed" in output) == (0, True), output


def test_a_real_client_needs_no_settings_for_security(secured: Secured) -> None:
    options = ["--sasl-mechanism", "PLAIN", "--username", "ann", f"--password-file={secured.password_file}"]
    options += ["--tls-ca", str(secured.certificate), "--clients", "kafka-python"]
    code, output = command(secured.kafka.address_of("BOTH"), *options, "--case", "clients.records")
    assert (code, "1 passed, 5 not applicable" in output) == (0, True), output


def test_cases_pass_with_a_client_certificate(secured: Secured) -> None:
    address, pem = secured.kafka.address_of("MUTUAL"), str(secured.certificate)
    options = ("--tls-ca", pem, "--tls-certificate", pem, "--case", "produce.exchange")
    code, output = command(address, *options)
    assert (code, "11 passed" in output) == (0, True), output


@pytest.mark.parametrize("mechanism", first_of(MECHANISMS))
def test_a_wrong_password(secured: Secured, mechanism: str) -> None:
    options = ("--sasl-mechanism", mechanism, "--username", user(mechanism), "--password", "wrong")
    code, output = command(secured.kafka.address_of("SASL"), *options)
    assert code == 2
    assert "was not authenticated" in output
    assert "Check --sasl-mechanism, --username and the password." in output


@pytest.mark.parametrize(
    ("listener", "options", "expected"),
    [
        ("SASL", (), "Does the listener require SASL? Use --sasl-mechanism"),
        ("TLS", (), "a TLS listener. Use --tls."),
        pytest.param("BOTH", (), "a TLS listener. Use --tls.", marks=pytest.mark.full),
        ("TLS", ("--tls",), "Use --tls-ca FILE"),
        ("MUTUAL", ("--tls-no-verify",), "Does it require --tls-certificate?"),
        ("SASL", ("--tls-no-verify",), "Omit --tls"),
    ],
)
def test_a_listener_with_other_security(
    secured: Secured, listener: str, options: tuple[str, ...], expected: str
) -> None:
    code, output = command(secured.kafka.address_of(listener), *options)
    assert code == 2
    assert expected in output


def test_a_plaintext_listener_does_not_use_sasl(secured: Secured) -> None:
    plain = Target(
        secured.kafka.bootstrap_servers, Security(authenticate=authenticator(Credentials("PLAIN", "ann", PASSWORD)))
    )
    with pytest.raises(AuthenticationError, match="does not use SASL"):
        plain.describe()


def test_a_short_session_is_renewed(secured: Secured) -> None:
    short = target(secured, "SHORT")
    short.describe()
    recorder = Recorder()
    ends_at = time.monotonic() + 2 * SESSION_SECONDS
    with short.connect(recorder, lambda: 30.0) as connection:
        requests = 0
        while time.monotonic() < ends_at:
            connection.call(MetadataRequest(topics=[]), 12)
            requests += 1
    assert {frame.title for frame in recorder.frames()} == {"Metadata v12 request", "Metadata v12 response"}
    assert requests > 10


def test_a_password_is_not_recorded(secured: Secured) -> None:
    with Check(target(secured, "SASL"), "conformance-secret", 30.0) as check:
        check.connect().call(MetadataRequest(topics=[]), 12)
        frames = check.recorder.frames()
    assert [frame.title for frame in frames] == ["Metadata v12 request", "Metadata v12 response"]
    assert not any(PASSWORD.encode() in frame.data for frame in frames)
