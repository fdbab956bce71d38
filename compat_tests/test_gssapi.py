"""Clients with GSSAPI and a real KDC: Java, librdkafka (kcat: confluent-kafka's wheels have no Kerberos), kafka-python.

Moldau only: these are the configurations of clients.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.testing import Broker
from moldau.testing.clients.java import java_command
from moldau.testing.clients.program import Program
from moldau.testing.kerberos import REALM, KerberosRealm
from moldau.testing.requirements import missing, require_gssapi, require_program

MODULE = "com.sun.security.auth.module.Krb5LoginModule"

pytestmark = [pytest.mark.full]


class Secured(NamedTuple):
    """A broker, and the keytab of alice."""

    realm: KerberosRealm
    address: str
    keytab: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    require_gssapi()
    with pytest.MonkeyPatch.context() as patch, KerberosRealm(tmp_path_factory.mktemp("realm")) as realm:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        service = realm.add(f"kafka/localhost@{REALM}", "server.keytab")
        alice = realm.add("alice", "alice.keytab")
        jaas = f'{MODULE} required useKeyTab=true storeKey=true keyTab="{service}" principal="kafka/localhost@{REALM}";'
        config = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://localhost:0",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
        }
        with Broker(config=config) as broker:
            port = broker.address_of("SASL_PLAINTEXT").rpartition(":")[2]
            yield Secured(realm, f"localhost:{port}", alice)
            assert "Traceback" not in broker.log()


def test_java(secured: Secured, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={MODULE} required useKeyTab=true storeKey=true keyTab="{secured.keytab}" '
        f'principal="alice@{REALM}";\n'
    )
    common = ["--bootstrap-server", secured.address, "--topic", "java", "--command-config", str(settings)]
    program = Program(java_command("CompatDriver"))  # a JVM with the environment of the realm
    try:
        for main_class, arguments, stdin in (
            ("ConsoleProducer", [], "one\n"),
            ("consumer.ConsoleConsumer", ["--from-beginning", "--max-messages", "1", "--timeout-ms", "60000"], ""),
        ):
            done = program.call(
                120,
                op="tool",
                bootstrap_servers=secured.address,
                security={},
                main_class=f"org.apache.kafka.tools.{main_class}",
                arguments=[*common, *arguments],
                stdin=stdin,
            )
            assert done["exit_code"] == 0, done
        assert done["stdout"].split() == ["one"], done
    finally:
        program.close()


def test_librdkafka(secured: Secured) -> None:
    kcat = require_program("kcat")
    common = [kcat, "-b", secured.address, "-t", "kcat"]
    for setting in (
        "security.protocol=sasl_plaintext",
        "sasl.mechanism=GSSAPI",
        "sasl.kerberos.principal=alice",
        f"sasl.kerberos.keytab={secured.keytab}",
    ):
        common += ["-X", setting]

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*common, *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False
        )
        if "No worthy mechs found" in done.stderr:
            missing("SASL's module for Kerberos", "Debian: apt-get install libsasl2-modules-gssapi-mit")
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-P", stdin="one\n")
    assert run("-C", "-e", "-o", "beginning") == "one\n"


def test_kafka_python(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    secured.realm.log_in("alice", secured.keytab)
    options = {
        "bootstrap_servers": secured.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    producer = KafkaProducer(**options)
    producer.send("kafka-python", b"one").get(60)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", group_id="g", **options)
    assert next(consumer).value == b"one"
    consumer.close()
