"""Settings of nodes whose listeners have TLS, SASL and ACLs, in files that Moldau and Apache Kafka can read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from moldau.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from moldau.testing.authority import Authority

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NODES: Final = "nodes"
"""The user of the nodes."""
ADMIN: Final = "admin"
ALICE: Final = "alice"
PASSWORDS: Final = {NODES: "secret-of-nodes", ADMIN: "secret-of-admin", ALICE: "secret-of-alice"}


class SecuredNodes:
    """One authority for all nodes and clients of a cluster. All users authenticate with PLAIN."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self._ca = folder / "ca.pem"
        self._ca.write_text(authority.certificate)
        self._certificate = authority.server().write(folder / "node.pem")

    def settings(self, clients: str = "CLIENTS") -> dict[str, str]:
        """The settings of any node; ``clients`` is the listener of clients and brokers."""
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        login = f'{PLAIN_MODULE} required username="{NODES}" password="{PASSWORDS[NODES]}" {users};'
        return {
            "listener.security.protocol.map": f"{clients}:SASL_SSL,CONTROLLER:SASL_SSL",
            "inter.broker.listener.name": clients,
            "controller.listener.names": "CONTROLLER",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            f"listener.name.{clients.lower()}.plain.sasl.jaas.config": login,
            "listener.name.controller.plain.sasl.jaas.config": login,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._ca),
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{NODES};User:{ADMIN}",
        }

    def confluent(self, user: str) -> dict[str, str]:
        """The settings of a client of librdkafka."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def properties(self, user: str) -> str:
        """The properties of a tool of Apache Kafka, or of Moldau."""
        return (
            "security.protocol=SASL_SSL\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self._ca}\n"
            "sasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN_MODULE} required username="{user}" password="{PASSWORDS[user]}";\n'
        )


def scram_login(user: str) -> str:
    """The JAAS configuration with which a node authenticates with SCRAM."""
    return f'{SCRAM_MODULE} required username="{user}" password="{PASSWORDS[user]}";'
