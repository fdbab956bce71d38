"""TLS, users and ACLs of a test's broker: ``Broker(tls=True, users={"alice": "secret"}, acls=["alice read topic t"])``.

A broker, also each of a cluster, has two listeners. Clients use the secured one. The other one, without security and on
the loopback interface, is for the broker's own requests, and its clients may do everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..protocol.errors import ErrorCode, KafkaError
from ..security.acl_arguments import creation_of, parse_acl
from ..security.acls import Acl
from ..security.jaas import PLAIN_MODULE, SCRAM_MODULE
from ..security.scram import MECHANISMS as SCRAM_MECHANISMS
from ..security.scram import MIN_ITERATIONS, salted_password
from .wire import WireClient

CLIENTS: Final = ("confluent-kafka", "kafka-python", "aiokafka", "java", "spark")
"""The clients that `Secured.client_config` has settings for."""

_MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS)
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_SALT: Final = b"moldau-testing"


class Secured:
    """The secured listener of a broker, and what its clients need."""

    def __init__(self, folder: Path, *, tls: bool, users: Mapping[str, str], acls: Sequence[str] | None) -> None:
        """``folder``: for certificates. Raises ValueError."""
        if acls is not None and not users:
            raise ValueError("acls need users: without them, all clients are User:ANONYMOUS")
        self._folder = folder
        self._tls = tls
        self._users = dict(users)
        self._acls = None if acls is None else [parse_acl(each) for each in acls]
        self.protocol = ("SASL_" if users else "") + ("SSL" if tls else "PLAINTEXT")
        """The security protocol, which is also the name of the listener."""

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority that signed the certificate of the broker, in PEM."""
        return self._folder / "ca.pem"

    def settings(self) -> dict[str, str]:
        """The settings of the broker besides its listeners."""
        settings = {}
        if self._tls:
            settings["ssl.keystore.location"] = str(self._certificate())
        if self._users:
            prefix = f"listener.name.{self.protocol.lower()}"
            users = " ".join(f"{_quoted('user_' + name)}={_quoted(each)}" for name, each in self._users.items())
            settings[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(_MECHANISMS)
            settings[f"{prefix}.plain.sasl.jaas.config"] = f"{PLAIN_MODULE} required {users};"
            for name in SCRAM_MECHANISMS:
                settings[f"{prefix}.{name.lower()}.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
        if self._acls is not None:
            settings["authorizer.class.name"] = _AUTHORIZER
            settings["super.users"] = "User:ANONYMOUS"
        return settings

    def prepare(self, address: str) -> None:
        """Create the users and ACLs, with the listener without security. What exists is not changed."""
        from ..protocol.messages.alter_user_scram_credentials import (
            AlterUserScramCredentialsRequest,
            ScramCredentialUpsertion,
        )
        from ..protocol.messages.create_acls import CreateAclsRequest

        with WireClient(address) as wire:
            for mechanism in SCRAM_MECHANISMS.values() if self._users else ():
                changes = [
                    ScramCredentialUpsertion(
                        name=name,
                        mechanism=mechanism.code,
                        iterations=MIN_ITERATIONS,
                        salt=_SALT,
                        salted_password=salted_password(mechanism, password, _SALT, MIN_ITERATIONS),
                    )
                    for name, password in self._users.items()
                ]
                for changed in wire.call(AlterUserScramCredentialsRequest(upsertions=changes)).results:
                    _check(changed.error_code, f"creating the user {changed.user}: {changed.error_message}")
            if self._acls:
                creations = [creation_of(acl) for acl in self._acls]
                answers = wire.call(CreateAclsRequest(creations=creations)).results
                for acl, created in zip(self._acls, answers, strict=True):
                    _check(created.error_code, f"creating the ACL {acl}: {created.error_message}")

    def is_known_by(self, address: str) -> bool:
        """Whether a broker has all users and ACLs, which another one may have created."""
        from ..protocol.messages.describe_acls import DescribeAclsRequest
        from ..protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
        from .acl_requests import acl_filter

        with WireClient(address) as wire:
            found = wire.call(DescribeUserScramCredentialsRequest(users=None)).results
            complete = {each.user for each in found if len(each.credential_infos) == len(SCRAM_MECHANISMS)}
            if not complete >= self._users.keys():
                return False
            if not self._acls:
                return True
            answer = wire.call(DescribeAclsRequest(**acl_filter()))
            known = {
                Acl(
                    resource.resource_type,
                    resource.resource_name,
                    resource.pattern_type,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
                for resource in answer.resources
                for acl in resource.acls
            }
            return known >= set(self._acls)

    def client_config(self, address: str, user: str | None, client: str, mechanism: str) -> dict[str, Any]:
        """The settings of a client. Raises ValueError."""
        if client not in CLIENTS:
            raise ValueError(f"{client!r} is not one of {', '.join(CLIENTS)}")
        if mechanism not in _MECHANISMS:
            raise ValueError(f"{mechanism!r} is not one of {', '.join(_MECHANISMS)}")
        if (user is None) == bool(self._users) or (user is not None and user not in self._users):
            raise ValueError(f"{user!r} is not one of the users: {', '.join(self._users) or 'the broker has none'}")
        password = "" if user is None else self._users[user]
        if client == "confluent-kafka":
            found: dict[str, Any] = {"bootstrap.servers": address, "security.protocol": self.protocol.lower()}
            if self._tls:
                found["ssl.ca.location"] = str(self.ca_file)
            if user is not None:
                found |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        elif client in ("java", "spark"):
            found = {"bootstrap.servers": address, "security.protocol": self.protocol}
            if self._tls:
                found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file)}
            if user is not None:
                module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
                login = f"{module} required username={_quoted(user)} password={_quoted(password)};"
                found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
            if client == "spark":
                found = {f"kafka.{name}": value for name, value in found.items()}
        else:
            found = {"bootstrap_servers": address, "security_protocol": self.protocol}
            if self._tls:
                found["ssl_context"] = _context(self.ca_file)
            if user is not None:
                found |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
        return found

    def _certificate(self) -> Path:
        """The file with the key and the certificate of the broker, which is created once."""
        path = self._folder / "broker.pem"
        if not path.exists():
            try:
                from .authority import Authority
            except ImportError:
                raise ValueError('tls=True requires the package cryptography: pip install "moldau[tls]"') from None
            authority = Authority()
            self.ca_file.write_text(authority.certificate)
            authority.server().write(path)
        return path


def _check(code: int, what: str) -> None:
    if code:
        raise KafkaError(ErrorCode(code), what)


def _context(ca_file: Path) -> Any:
    import ssl

    return ssl.create_default_context(cafile=str(ca_file))


def _quoted(text: str) -> str:
    """A token of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
