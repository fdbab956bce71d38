"""A controller and two brokers that authenticate each other with TLS certificates alone, or with SCRAM or OAUTHBEARER
over TLS.

The brokers also have a listener without security on the loopback interface, for the requests of the test. The topic has
a replica on each broker, and a record is acknowledged by both, so that all links are used: of brokers to the controller
and to each other.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from moldau.metadata.image import BROKER_RESOURCE
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.testing import Broker
from moldau.testing.apache_kafka import new_id
from moldau.testing.authority import Authority, Issued
from moldau.testing.builders import batch, produce_request
from moldau.testing.controllers import CONTROLLER, Controller
from moldau.testing.joined_brokers import format_directory, joined_broker
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .secured_nodes import AUTHORIZER, NODES, PASSWORDS, scram_login
from .test_listener_reload import TlsWire
from .test_oauthbearer import document, signed

BROKERS = (1, 2)
RULE = "RULE:^CN=([^,]+).*$/$1/"


class Nodes:
    """The nodes of one cluster."""

    def __init__(self, folder: Path, stack: ExitStack, mechanism: str | None = None) -> None:
        """``mechanism``: of SASL; None: certificates."""
        scram = mechanism == "SCRAM-SHA-512"
        self.folder = folder
        self.issued: dict[str, Issued] = {}
        self.authority = Authority()
        self.next_authority = Authority("The next one")
        (folder / "ca.pem").write_text(self.authority.certificate + self.next_authority.certificate)
        protocol = "SASL_SSL" if mechanism is not None else "SSL"
        settings = {
            "listener.security.protocol.map": f"TEST:PLAINTEXT,INTERNAL:{protocol},CONTROLLER:{protocol}",
            "controller.listener.names": "CONTROLLER",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{NODES};User:ANONYMOUS",
        }
        if scram:
            settings |= {
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
                "listener.name.internal.scram-sha-512.sasl.jaas.config": scram_login(NODES),
                "listener.name.controller.scram-sha-512.sasl.jaas.config": scram_login(NODES),
            }
        elif mechanism == "OAUTHBEARER":
            settings |= oauth(folder)
        else:
            # Without the rule, a node would be User:CN=nodes, which may not do anything.
            settings |= {"ssl.client.auth": "required", "ssl.principal.mapping.rules": RULE}
        self.controller = Controller(folder, **settings, **self.key("controller"))
        stack.callback(self.controller.stop)
        if scram:
            self._format_with_user()
        self.controller.start()
        self.brokers = [stack.enter_context(self._broker(number, settings)) for number in BROKERS]

    def key(self, name: str, issued: Issued | None = None) -> dict[str, str]:
        """The setting of a new certificate of a node, or of this one."""
        self.issued[name] = issued or self.issue()
        return {"ssl.keystore.location": str(self.issued[name].write(self.folder / f"{name}.pem"))}

    def issue(self) -> Issued:
        return self.authority.issue(NODES, alternative_names=("localhost", "127.0.0.1"))

    def replicate(self, topic: str) -> None:
        """Create a topic on both brokers, with a record that both have."""
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(BROKERS))
        created = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=[assignment])
        with WireClient(self.brokers[0].bootstrap_servers, timeout_s=60) as wire:
            (result,) = wire.call(CreateTopicsRequest(topics=[created], timeout_ms=60_000)).topics
            assert result.error_code == 0, result

            def produced() -> bool:
                request = produce_request(topic, batch(b"x"), acks=-1)
                (partition,) = wire.call(request, 7).responses[0].partition_responses
                return bool(partition.error_code == 0)

            wait_until(produced)

    def wire(self) -> TlsWire:
        """A connection to the controller, with the certificate of a node."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        context.load_cert_chain(self.issue().write(self.folder / "client.pem"))
        host, _, port = self.controller.address.rpartition(":")
        return TlsWire((host, int(port)), context)

    def alter_all(self, settings_of: Callable[[str], Mapping[str, str]]) -> None:
        """Set dynamic settings of TLS of all nodes, and wait until new connections use them."""
        with self.wire() as controller:
            changes = prefixed("controller", settings_of("controller"))
            lines = self.controller.log().count("new certificates")
            assert alter(controller, CONTROLLER, changes) == (0, None)
        wait_until(lambda: self.controller.log().count("new certificates") > lines)
        for number, broker in zip(BROKERS, self.brokers, strict=True):
            own = settings_of(f"broker-{number}")
            lines = broker.log().count("new certificates")
            with WireClient(broker.bootstrap_servers, timeout_s=60) as wire:
                assert alter(wire, number, prefixed("internal", own) | prefixed("controller", own)) == (0, None)
            # The listener, the links to it, and those to the controller.
            wait_until(lambda: broker.log().count("new certificates") >= lines + 3)  # noqa: B023

    def disconnect(self) -> None:
        """Close the connections between the nodes, which then connect again."""
        internal = [broker.address_of("INTERNAL") for broker in self.brokers]
        for broker in self.brokers:
            for addresses in ([self.controller.address, *internal], []):
                broker._ask(60, do="cut", addresses=addresses)

    def _broker(self, number: int, settings: dict[str, str]) -> Broker:
        directory = self.folder / f"broker-{number}"
        format_directory(self.controller.cluster_id, directory, number)
        quorum = {"controller.quorum.bootstrap.servers": self.controller.address}
        own = {
            "listeners": "TEST://127.0.0.1:0,INTERNAL://127.0.0.1:0",
            "inter.broker.listener.name": "INTERNAL",
            "min.insync.replicas": "2",
        }
        return joined_broker(directory, number, quorum, **settings, **own, **self.key(f"broker-{number}"))

    def _format_with_user(self) -> None:
        """The first user exists before the first broker connects."""
        file = self.folder / "controller.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.controller.settings.items()))
        command = [sys.executable, "-m", "moldau", "format", "--cluster-id", new_id(), "--config", str(file)]
        command += ["--add-scram", f"SCRAM-SHA-512=[name={NODES},password={PASSWORDS[NODES]}]"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(tmp_path, stack, getattr(request, "param", None))


def oauth(folder: Path) -> dict[str, str]:
    """The settings of nodes that authenticate with the token in a file."""
    package = "org.apache.kafka.common.security.oauthbearer"
    allowed = "org.apache.kafka.sasl.oauthbearer.allowed.files"
    keys, token = folder / "keys.json", folder / "token"
    keys.write_bytes(document("first"))
    token.write_text(signed(sub=NODES))
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "moldau",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        allowed: f"{keys.as_uri()},{token.as_uri()}",
    }
    for listener in ("internal", "controller"):
        name = f"listener.name.{listener}.oauthbearer"
        settings[f"{name}.sasl.jaas.config"] = f"{package}.OAuthBearerLoginModule required;"
        settings[f"{name}.sasl.server.callback.handler.class"] = f"{package}.OAuthBearerValidatorCallbackHandler"
    return settings


@pytest.mark.slow
@pytest.mark.parametrize("nodes", ["SCRAM-SHA-512", "OAUTHBEARER"], indirect=True)
def test_nodes_authenticate_with_sasl(nodes: Nodes) -> None:
    nodes.replicate("topic")
    for log in (nodes.controller.log(), *(broker.log() for broker in nodes.brokers)):
        assert PASSWORDS[NODES] not in log
        assert "eyJ" not in log, "the token"


@pytest.mark.slow
def test_new_certificates_of_nodes_are_for_new_connections(nodes: Nodes) -> None:
    """The nodes get certificates of another authority, and then trust only that one."""
    nodes.replicate("first")
    nodes.authority = nodes.next_authority
    nodes.alter_all(lambda name: nodes.key(f"{name}-new"))
    (nodes.folder / "next.pem").write_text(nodes.authority.certificate)
    nodes.alter_all(lambda name: {"ssl.truststore.location": str(nodes.folder / "next.pem")})
    nodes.disconnect()
    nodes.replicate("second")
    with nodes.wire() as wire:
        served = wire.served_certificate()
    assert served == ssl.PEM_cert_to_DER_cert(nodes.issued["controller-new"].certificate)
    for log in (nodes.controller.log(), *(broker.log() for broker in nodes.brokers)):
        assert "the previous settings stay in effect" not in log


@pytest.mark.slow
def test_a_certificate_of_links_that_may_not_replace_the_old_one(nodes: Nodes) -> None:
    store = nodes.authority.issue("another name", alternative_names=("localhost", "127.0.0.1"))
    changes = prefixed("controller", nodes.key("broker-1-other", store))
    with WireClient(nodes.brokers[0].bootstrap_servers) as wire:
        code, message = alter(wire, BROKERS[0], changes)
    assert code == ErrorCode.INVALID_REQUEST
    assert "the certificate is for 'CN=another name', the previous one for 'CN=nodes'" in (message or "")


def prefixed(listener: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of a listener."""
    return {f"listener.name.{listener}.{name}": value for name, value in settings.items()}


def alter(wire: WireClient, node_id: int, changes: Mapping[str, str]) -> tuple[int, str | None]:
    """Set dynamic settings of a node. The error of the response."""
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in changes.items()]
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=str(node_id), configs=configs)
    (response,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return response.error_code, response.error_message
