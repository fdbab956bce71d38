"""`spark.kafka.clusters.*`: Spark's own provider obtains a delegation token with a ticket of Kerberos, over SASL_SSL.

The provider logs in with GSSAPI and creates the token; the query authenticates with the token (SCRAM-SHA-512). Its
options have no credentials, and nothing but SASL listens there. Another query authenticates with Kerberos itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from moldau.testing import Broker
from moldau.testing.authority import Authority
from moldau.testing.kerberos import REALM, KerberosRealm
from moldau.testing.requirements import require_gssapi

pytestmark = pytest.mark.full

DEADLINE_S = 500
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_a_query_with_a_token_of_sparks_own_provider(
    spark_conf: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("bootstrap_server") or request.config.getoption("apache"):
        pytest.skip("starts its own broker of Moldau")
    require_gssapi()
    with KerberosRealm(tmp_path / "realm") as realm:
        for name, value in realm.environment.items():
            monkeypatch.setenv(name, value)
        service = realm.add(f"kafka/localhost@{REALM}", "server.keytab")
        keytab = realm.add("alice", "alice.keytab")
        listener = "listener.name.sasl_ssl"
        authority = Authority()
        certificate = tmp_path / "authority.pem"
        certificate.write_text(authority.certificate)
        config = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://localhost:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.server().write(tmp_path / "server.pem")),
            "sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-512",
            "sasl.kerberos.service.name": "kafka",
            f"{listener}.gssapi.sasl.jaas.config": f"{KERBEROS} required useKeyTab=true storeKey=true "
            f'keyTab="{service}" principal="kafka/localhost@{REALM}";',
            f"{listener}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "delegation.token.secret.key": "secret-of-tokens",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
        }
        with Broker(config=config) as broker:
            port = broker.address_of("SASL_SSL").rpartition(":")[2]
            program = Path(__file__).with_name("delegation_token_program.py")
            done = subprocess.run(
                [
                    *(sys.executable, str(program), f"localhost:{port}", str(certificate)),
                    *(str(keytab), f"alice@{REALM}", "orders"),
                ],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout.split() == ["1", "100", "200"]
            assert "secret-of" not in broker.log()
