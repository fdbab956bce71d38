"""The server under test: how to connect to it, and what it says about itself."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ..protocol.api import ApiKey, request_class
from ..protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ..protocol.messages.api_versions import ApiVersionsRequest
from ..protocol.messages.metadata import MetadataRequest
from .case import Release
from .exchange import Connection, Recorder, open_socket
from .sasl import Credentials

CLIENT_ID: Final = "moldau-conformance"
RESPONSE_SECONDS: Final = 10.0
"""How long the server may take for its versions and brokers."""

# The highest level of `metadata.version` that each release supports.
_METADATA_VERSIONS: Final = {
    7: Release(3, 3), 8: Release(3, 4), 11: Release(3, 5), 14: Release(3, 6), 19: Release(3, 7), 20: Release(3, 8),
    21: Release(3, 9), 25: Release(4, 0), 27: Release(4, 1), 29: Release(4, 2), 30: Release(4, 3),
}  # fmt: skip

# For servers without that feature: the highest version of an API that a release added, newest first.
_ADDED: Final = (
    (ApiKey.FETCH, 18, Release(4, 1)),
    (ApiKey.METADATA, 13, Release(4, 0)),
    (ApiKey.FETCH, 17, Release(3, 9)),
    (ApiKey.LIST_GROUPS, 5, Release(3, 8)),
    (ApiKey.FETCH, 16, Release(3, 7)),
    (ApiKey.FETCH, 15, Release(3, 5)),
)


class Security(NamedTuple):
    """How connections are secured."""

    tls: ssl.SSLContext | None = None
    authenticate: Callable[[Connection], None] | None = None
    """Authenticates a new connection; raises `ConnectionError` with the server's reason."""
    credentials: Credentials | None = None
    """What `authenticate` uses, for cases that authenticate a connection themselves."""
    has_certificate: bool = False
    """Whether `tls` has a certificate of the client."""


class Target:
    """The server at an address. `describe` finds out what it supports."""

    def __init__(self, address: str, security: Security = Security(), patience: float = 1.0) -> None:  # noqa: B008
        self.address = address
        self.security = security
        self.patience = patience
        """Multiplies all deadlines."""
        self.apis: Mapping[int, tuple[int, int]] = {}
        """The lowest and the highest version of each API."""
        self.supported_features: Mapping[str, int] = {}
        self.features: Mapping[str, int] = {}
        """Finalized levels."""
        self.cluster_id: str | None = None
        self.brokers: Mapping[int, str] = {}
        """The addresses of all brokers, by node ID."""
        self.node_id = -1
        """The broker at the address."""
        self.kill: Callable[[], None] | None = None
        """Kill the server, for crash cases; None if the user gave no commands. Raises OSError with the reason."""
        self.restart: Callable[[], None] | None = None
        """Start the server again; `Crashes` waits until it responds. Raises OSError with the reason."""

    def other_brokers(self) -> list[str]:
        """The addresses of the cluster's other brokers."""
        if len(self.brokers) <= 1:
            return []
        return [address for node_id, address in self.brokers.items() if node_id != self.node_id]

    @property
    def other_ids(self) -> list[int]:
        """The node IDs of the cluster's other brokers."""
        return [node_id for node_id in sorted(self.brokers) if node_id != self.node_id]

    def connect(
        self,
        recorder: Recorder,
        remaining: Callable[[], float],
        *,
        address: str | None = None,
        client_id: str | None = CLIENT_ID,
        authenticated: bool = True,
    ) -> Connection:
        """A new connection, authenticated if the server uses SASL. Raises OSError."""
        connection = Connection(
            address or self.address, recorder, client_id=client_id, remaining=remaining, tls=self.security.tls
        )
        if authenticated and self.security.authenticate is not None:
            try:
                self.security.authenticate(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def accepts_connections(self) -> bool:
        """Whether something listens at the address."""
        try:
            open_socket(self.address, 2.0 * self.patience).close()
        except OSError:
            return False
        return True

    def responds(self) -> bool:
        """Whether the server responds to ApiVersions: a proxy before it accepts connections while it is down."""
        try:
            with self.connect(Recorder(), self._within(RESPONSE_SECONDS)) as connection:
                connection.extra_bytes = lambda: True
                connection.call(ApiVersionsRequest(), 0)
        except (OSError, KafkaError, MalformedMessage):
            return False
        return True

    def _within(self, seconds: float) -> Callable[[], float]:
        """The seconds until a deadline, at least a small number."""
        deadline = time.monotonic() + seconds * self.patience
        return lambda: max(deadline - time.monotonic(), 0.01)

    def describe(self) -> None:
        """Ask the server for its APIs, features and brokers.

        Raises `OSError`, `KafkaError`, `MalformedMessage`; `probe` explains them.
        """
        with self.connect(Recorder(), self._within(RESPONSE_SECONDS)) as connection:
            connection.extra_bytes = lambda: True
            answer = connection.call(ApiVersionsRequest(), 0)
            if answer.error_code:
                raise KafkaError(ErrorCode(answer.error_code), "the response to ApiVersions v0")
            if not answer.api_keys:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the response to ApiVersions v0 lists no APIs")
            self.apis = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
            highest = min(self.apis.get(ApiKey.API_VERSIONS, (0, 0))[1], 4)
            if highest >= 3:
                request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
                answer = connection.call(request, highest)
                self.supported_features = {each.name: each.max_version for each in answer.supported_features}
                self.features = {each.name: each.max_version_level for each in answer.finalized_features}
            version = self.highest_version(ApiKey.METADATA)
            if version is not None:
                metadata = connection.call(MetadataRequest(topics=[]), version)
                self.cluster_id = metadata.cluster_id
                self.brokers = {
                    each.node_id: f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}"
                    for each in metadata.brokers
                }
                here = [node for node, address in self.brokers.items() if address == self.address]
                self.node_id = here[0] if here else next(iter(self.brokers), -1)

    def highest_version(self, api: ApiKey) -> int | None:
        """The highest version that both sides have; None if there is none."""
        lowest, highest = self.apis.get(api, (0, -1))
        stable = request_class(api).STABLE_VERSIONS
        version = min(highest, stable.highest)
        return version if version >= max(lowest, stable.lowest) else None

    def supports(self, api: ApiKey, version: int) -> bool:
        lowest, highest = self.apis.get(api, (0, -1))
        return lowest <= version <= highest

    @property
    def release(self) -> Release:
        """The release of Apache Kafka whose protocol the server has, from its features or its versions of APIs."""
        level = self.supported_features.get("metadata.version")
        if level is not None:
            return next((each for highest, each in _METADATA_VERSIONS.items() if level <= highest), Release(4, 3))
        return next((each for api, version, each in _ADDED if self.supports(api, version)), Release(3, 4))

    def to_json(self) -> dict[str, Any]:
        """The report's `server`."""
        return {
            "address": self.address,
            "clusterId": self.cluster_id,
            "brokers": {str(node): address for node, address in self.brokers.items()},
            "protocolOfApacheKafka": str(self.release),
            "apis": {_name(api): list(versions) for api, versions in sorted(self.apis.items())},
            "features": dict(self.features),
        }


def _name(api: int) -> str:
    try:
        return ApiKey(api).message_name
    except ValueError:
        return str(api)
