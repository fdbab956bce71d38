"""The rows of TLS and of ACLs can be measured: clients use the listener with TLS, and their records arrive.

Only against Moldau. The rows are small: their values do not matter, but must exist.
"""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest

from moldau.benchmarks import handshakes
from moldau.benchmarks.registry import all_rows
from moldau.benchmarks.row import Row
from moldau.benchmarks.rows import access, encryption
from moldau.benchmarks.rows.lifetime import API_VERSIONS
from moldau.testing import Broker
from moldau.testing.full_run import first_of

from .small import measured

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks use epoll and /proc")

# The rows without the JVM and the load generator first.
ROWS = sorted(
    (row for row in all_rows() if row.group in (access.GROUP, encryption.GROUP)), key=lambda row: len(row.needs)
)


@pytest.mark.slow
@pytest.mark.parametrize("row", first_of(ROWS), ids=lambda row: row.name)
def test_row(row: Row, tmp_path: Path) -> None:
    numbers = measured(row, None, tmp_path, scale=0.002)
    assert [name for name, number in numbers.items() if number <= 0] == []


def test_connections_are_those_of_a_trusted_server(tmp_path: Path) -> None:
    with Broker(tls=True, thread=True) as broker, Broker(tls=True, thread=True) as other:
        address = broker.bootstrap_servers
        seconds = handshakes.open_connections(address, broker.ca_file, 5, in_flight=2, greeting=API_VERSIONS)
        assert seconds > 0
        with pytest.raises(ssl.SSLCertVerificationError):
            handshakes.open_connections(address, other.ca_file, 1, in_flight=1, greeting=API_VERSIONS)
