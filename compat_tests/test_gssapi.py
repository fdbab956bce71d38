"""Clients with GSSAPI over SASL_SSL, and a real KDC: records are produced and read back.

The only authorized user is the one that authenticates. With ``--apache``, the server is Apache Kafka. confluent-kafka's
wheels have no Kerberos; kcat has the same library with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import pytest

from moldau.compat_tests import secured_clients as clients
from moldau.compat_tests.secured_clients import KERBEROS, VALUES, Run, Secured
from moldau.security.jaas import KERBEROS_MODULE
from moldau.server.authorizer import STANDARD_AUTHORIZER
from moldau.testing import Broker, jvm
from moldau.testing.apache_kafka import ApacheKafka
from moldau.testing.authority import Authority
from moldau.testing.kerberos import REALM, KerberosRealm
from moldau.testing.requirements import missing, require_gssapi
from moldau.testing.topic_requests import create_topic

pytestmark = [pytest.mark.full]

CLIENTS: Final[dict[str, Run]] = {
    "java": clients.java,
    "kcat": clients.kcat,
    "kafka-python": clients.kafka_python,
    "aiokafka": clients.aiokafka,
    "franz-go": clients.franz_go,
}
SERVICE: Final = f"kafka/localhost@{REALM}"


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if request.config.getoption("bootstrap_server"):
        pytest.skip("needs a server of this realm")
    require_gssapi()
    folder = tmp_path_factory.mktemp("kerberos")
    authority = Authority()
    certificate = folder / "authority.pem"
    certificate.write_text(authority.certificate)
    with pytest.MonkeyPatch.context() as patch, KerberosRealm(folder / "realm") as realm:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        service, alice = realm.add(SERVICE, "server.keytab"), realm.add("alice", "alice.keytab")
        realm.log_in("alice", alice)
        options = f'useKeyTab=true storeKey=true keyTab="{service}" principal="{SERVICE}"'
        config = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.server().write(folder / "server.pem")),
            "sasl.enabled.mechanisms": KERBEROS,
            "sasl.kerberos.service.name": "kafka",
            "listener.name.secure.gssapi.sasl.jaas.config": f"{KERBEROS_MODULE} required {options};",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:alice",
        }
        server: AbstractContextManager[Any]
        if request.config.getoption("apache"):
            server = ApacheKafka(config, listeners={"SECURE": "SASL_SSL"}, jvm_options=jvm.OPTIONS, host="localhost")
        else:
            listeners = {
                "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
                "advertised.listeners": "PLAINTEXT://127.0.0.1:0,SECURE://localhost:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            }
            server = Broker(config=config | listeners)
        with server as started:
            for topic in CLIENTS:
                create_topic(started.bootstrap_servers, topic)
            port = started.address_of("SECURE").rpartition(":")[2]
            yield Secured(f"localhost:{port}", certificate, keytab=alice)
            if isinstance(started, Broker):
                assert "Traceback" not in started.log()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_produces_and_reads(secured: Secured, client: str) -> None:
    try:
        received = CLIENTS[client](secured, KERBEROS, client)
    except Exception as error:
        if "No worthy mechs found" in str(error):
            missing("SASL's module for Kerberos", "Debian: apt-get install libsasl2-modules-gssapi-mit")
        raise
    assert received == VALUES
