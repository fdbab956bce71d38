"""``moldau tls make``."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.testing import Broker

from .conftest import Run


def test_the_certificates_work_together(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    made = run("tls", "make", str(folder), "--host", "kafka.example.com", "--client", "alice")
    assert made.code == 0, made.err
    assert {path.name for path in folder.iterdir()} == {"ca.pem", "ca-key.pem", "server.pem", "alice.pem"}
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == (0o644 if path.name == "ca.pem" else 0o600)
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
    }
    with Broker(config=config) as broker:
        properties = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "ssl.keystore.location": str(folder / "alice.pem"),
        }
        options = [f"--command-property={name}={value}" for name, value in properties.items()]
        for host in ("127.0.0.1", "localhost"):
            address = f"{host}:{broker.address_of('SSL').rpartition(':')[2]}"
            assert run("topics", "list", "-b", address, *options).code == 0


def test_an_authority_is_used_again_and_files_are_kept(run: Run, tmp_path: Path) -> None:
    run("tls", "make", str(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = run("tls", "make", str(tmp_path), "--client", "bob")
    assert f"Kept {tmp_path / 'server.pem'}." in again.lines
    assert f"Created {tmp_path / 'bob.pem'}." in again.lines
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_other_files_are_not_overwritten(run: Run, tmp_path: Path) -> None:
    run("tls", "make", str(tmp_path / "other"))
    (tmp_path / "ca.pem").write_text("mine")
    refused = run("tls", "make", str(tmp_path))
    assert (refused.code, (tmp_path / "ca.pem").read_text()) == (1, "mine")
    (tmp_path / "ca-key.pem").write_bytes((tmp_path / "other" / "ca-key.pem").read_bytes())
    assert "are not an authority of Moldau" in run("tls", "make", str(tmp_path)).err
    (tmp_path / "ca.pem").write_bytes((tmp_path / "other" / "server.pem").read_bytes())
    assert "does not belong" in run("tls", "make", str(tmp_path)).err


@pytest.mark.parametrize("name", ["ca", "server", "ca-key", "../alice", "a/b"])
def test_names_that_a_client_cannot_have(run: Run, tmp_path: Path, name: str) -> None:
    refused = run("tls", "make", str(tmp_path / "new"), "--client", name)
    assert refused.code == 2
    assert not (tmp_path / "new").exists()
