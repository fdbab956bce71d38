"""Commands that connect with TLS and SASL: ``--command-config`` and ``--command-property``."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.testing import Broker
from moldau.testing.authority import Authority

from ..server.http_provider import Handler, served
from ..server.test_oauthbearer import unsigned
from .conftest import Result, Run


class Secured(NamedTuple):
    """A broker with TLS, users and ACLs."""

    broker: Broker
    folder: Path

    def file(self, user: str, mechanism: str = "SCRAM-SHA-512", **changes: str) -> str:
        """The path of the properties of a user, as Apache Kafka's tools read them."""
        settings = self.broker.client_config(user, client="java", mechanism=mechanism)
        settings |= {name.replace("_", "."): value for name, value in changes.items()}
        path = self.folder / f"{user}-{mechanism}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    acls = ["alice all topic *", "alice all group *", "alice all cluster", "bob describe topic events"]
    with Broker(tls=True, users={"alice": "a secret", "bob": "secret"}, acls=acls) as broker:
        yield Secured(broker, tmp_path_factory.mktemp("client"))
        assert "Traceback" not in broker.log()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_all_kinds_of_connections(run: Run, secured: Secured, mechanism: str) -> None:
    """Single requests, requests to all brokers, and kafka-python's producer and consumer."""
    config = ("--command-config", secured.file("alice", mechanism))
    topic = f"events-{mechanism}"
    assert run("topics", "create", topic, *config).code == 0
    assert run("produce", topic, *config, input=b"one\ntwo\n").code == 0
    assert run("consume", topic, "--from-beginning", "--max-messages", "2", *config).lines == ["one", "two"]
    assert topic in run("topics", "list", *config).text
    assert run("log", "dirs", *config).code == 0
    assert run("groups", "list", *config).code == 0
    assert "No problems." in run("doctor", *config).text


def test_the_user_is_that_of_the_file(run: Run, secured: Secured) -> None:
    run("topics", "create", "events", "--command-config", secured.file("alice"))
    assert run("topics", "list", "--command-config", secured.file("bob")).text.split()[-3:-2] == ["events"]
    refused = run("topics", "create", "more", "--command-config", secured.file("bob"))
    assert refused.code == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.err


def test_properties_of_options_override_the_file(run: Run, secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_COMMAND_CONFIG", secured.file("alice"))
    assert run("topics", "list").code == 0
    wrong = run("topics", "list", "--command-property", "sasl.mechanism=SCRAM-SHA-1")
    assert "sasl.mechanism SCRAM-SHA-1 is not supported" in wrong.err
    other = run("topics", "list", "--bootstrap-server", "127.0.0.1:1")  # takes precedence over bootstrap.servers
    assert "cannot reach 127.0.0.1:1" in other.err


def refused(result: Result) -> str:
    assert result.code == 1, result
    assert "secret" not in result.err
    return result.err


def test_why_a_connection_fails(run: Run, secured: Secured, tmp_path: Path) -> None:
    def listed(**changes: str) -> str:
        return refused(run("topics", "list", "--command-config", secured.file("alice", "PLAIN", **changes)))

    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'{module} required username="alice" password="wrong";'
    assert "the user alice was not authenticated" in listed(sasl_jaas_config=login)
    assert "the option password is missing" in listed(sasl_jaas_config=f"{module} required username=alice;")
    assert "a listener with TLS or SASL needs --command-config" in listed(security_protocol="PLAINTEXT")
    assert "is not one of" in listed(security_protocol="TLS")
    stranger = tmp_path / "stranger.pem"
    stranger.write_text(Authority("stranger").certificate)
    assert "the certificate of the server is not valid" in listed(ssl_truststore_location=str(stranger))
    assert "No such file" in listed(ssl_truststore_location=str(tmp_path / "missing.pem"))
    own = secured.broker._listen
    assert "does the listener use TLS?" in listed(bootstrap_servers=own)
    assert "the listener has no SASL" in listed(bootstrap_servers=own, security_protocol="SASL_PLAINTEXT")


def test_a_missing_file_and_a_malformed_property_are_usage_errors(run: Run, tmp_path: Path) -> None:
    assert run("topics", "list", "--command-config", str(tmp_path / "missing")).code == 2
    malformed = run("topics", "list", "--command-property", "sasl.mechanism")
    assert malformed.code == 2
    assert "it is not KEY=VALUE" in malformed.err


def test_a_certificate_of_the_client(run: Run, tmp_path: Path) -> None:
    authority = Authority()
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.certificate)
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.server().write(tmp_path / "server.pem")),
        "ssl.truststore.location": str(ca),
        "ssl.client.auth": "required",
    }
    (tmp_path / "alice.p12").write_bytes(authority.issue("alice").pkcs12("p12-password"))
    properties = tmp_path / "alice.properties"
    with Broker(config=config) as broker:
        common = f"security.protocol=SSL\nbootstrap.servers={broker.address_of('SSL')}\nssl.truststore.location={ca}\n"
        properties.write_text(
            f"{common}ssl.keystore.location={tmp_path / 'alice.p12'}\nssl.keystore.password=p12-password\n"
        )
        assert run("topics", "list", "--command-config", str(properties)).code == 0
        properties.write_text(common)
        assert run("topics", "list", "--command-config", str(properties)).code == 1


def test_values_of_the_file_may_come_from_variables(
    secured: Secured, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTOCOL_OF_THE_TEST", "SASL_SSL")
    path = secured.file(
        "alice",
        config_providers="env",
        config_providers_env_class="org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        security_protocol="${env:PROTOCOL_OF_THE_TEST}",
    )
    listed = run("topics", "list", "-b", secured.broker.bootstrap_servers, "--command-config", path)
    assert listed.code == 0, listed.err
    monkeypatch.delenv("PROTOCOL_OF_THE_TEST")
    refused = run("topics", "list", "-b", secured.broker.bootstrap_servers, "--command-config", path)
    assert refused.code != 0
    assert "there is no such variable" in refused.err


OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.fixture(scope="module")
def token_broker() -> Iterator[Broker]:
    listener = "listener.name.sasl_plaintext"
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        f"{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.oauthbearer.sasl.jaas.config": f"{OAUTH};",
        f"{listener}.moldau.allow.unsecured.tokens": "true",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(config=config) as broker:
        yield broker


def of_tokens(
    run: Run, broker: Broker, command: tuple[str, ...], changes: dict[str, str], input: bytes = b""
) -> Result:
    properties = {
        "bootstrap.servers": broker.address_of("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{OAUTH} clientId="commands" clientSecret="a secret";',
    } | {f"sasl.{name.replace('_', '.')}": value for name, value in changes.items()}
    options = [part for name, value in properties.items() for part in ("--command-property", f"{name}={value}")]
    return run(*command, *options, input=input)


def test_commands_with_a_token_of_a_file(run: Run, token_broker: Broker, tmp_path: Path) -> None:
    def called(*command: str, input: bytes = b"", **changes: str) -> Result:
        changes = {"oauthbearer_token_endpoint_url": path.as_uri()} | changes
        return of_tokens(run, token_broker, command, changes, input)

    path = tmp_path / "token"
    path.write_text(unsigned())
    assert called("topics", "create", "events").code == 0
    assert called("produce", "events", input=b"one\n").code == 0  # with kafka-python
    assert called("consume", "events", "--from-beginning", "--max-messages", "1").lines == ["one"]
    path.write_text(unsigned(exp=1))
    assert "was not authenticated" in refused(called("topics", "list"))
    assert "was not authenticated" in refused(called("produce", "events", input=b"two\n"))
    path.unlink()
    assert f"the token in {path} cannot be read: No such file" in refused(called("topics", "list"))
    without = refused(called("topics", "list", oauthbearer_token_endpoint_url=""))
    assert "OAUTHBEARER cannot be used: sasl.oauthbearer.token.endpoint.url" in without
    other = refused(called("topics", "list", login_callback_handler_class="a.B"))
    assert "sasl.login.callback.handler.class is a.B, but must be" in other


def test_commands_with_a_token_of_a_provider(run: Run, token_broker: Broker) -> None:
    class Provider(Handler):
        method = "POST"

        def answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            assert b64decode(self.headers["Authorization"].removeprefix("Basic ")) == b"commands:a secret"
            self.respond(json.dumps({"access_token": unsigned()}).encode())

    with served(Provider) as address:
        url = {"oauthbearer_token_endpoint_url": f"{address}/token"}
        listed = of_tokens(run, token_broker, ("topics", "list"), url)
    assert listed.code == 0, listed.err


def test_what_gssapi_lacks_is_named(run: Run, token_broker: Broker) -> None:
    def listed(options: str, **changes: str) -> str:
        module = f"com.sun.security.auth.module.Krb5LoginModule required {options};"
        login = {"mechanism": "GSSAPI", "jaas_config": module, "kerberos_service_name": "kafka"} | changes
        return refused(of_tokens(run, token_broker, ("topics", "list"), login))

    assert "sasl.kerberos.service.name is missing" in listed("useTicketCache=true", kerberos_service_name="")
    assert "the option principal is missing" in listed("useKeyTab=true")
    missing = listed('useKeyTab=true keyTab="/missing.keytab" principal="alice"')
    assert "the keytab /missing.keytab cannot be read: No such file" in missing
