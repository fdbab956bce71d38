"""``moldau serve --secure``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moldau.cli.serve_secure import bootstrap_option
from moldau.config.sources import load
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing.wire import WireClient

from .conftest import Result, Run
from .test_serve_process import COMMAND, DEADLINE_S, ENVIRONMENT, serving


def ended(server: subprocess.Popen[str]) -> str:
    """Stop the server; returns its standard error."""
    server.terminate()
    _, err = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0, err
    assert "Traceback" not in err
    return err


def refused(*options: str) -> str:
    """The message of a server that does not start."""
    result = subprocess.run([*COMMAND, *options], capture_output=True, text=True, env=ENVIRONMENT, timeout=DEADLINE_S)
    assert result.returncode == 1, result
    return result.stderr


def test_the_first_start_and_later_ones(run: Run, tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "data-security"
    options = ("--secure", "--listen", "127.0.0.1:0", "--data-dir", str(data))
    admin = folder / "admin.properties"
    with serving(*options) as (server, address):

        def command(*arguments: str, properties: Path = admin) -> Result:
            return run(*arguments, "-b", address, "--command-config", str(properties))

        assert command("topics", "create", "events").code == 0
        (tmp_path / "password").write_text("a secret\n")
        assert command("users", "set", "alice", "--password-file", str(tmp_path / "password")).code == 0
        alice = tmp_path / "alice.properties"
        login = [f'username="{name}" password=' for name in ("admin", "alice")]
        text = admin.read_text().replace(login[0], login[1])
        password = text.partition(login[1])[2].partition('"')[2].partition('"')[0]
        alice.write_text(text.replace(password, "a secret"))
        assert "events" not in command("topics", "list", properties=alice).text
        assert command("acls", "add", "alice", "describe", "topic", "events").code == 0
        assert "events" in command("topics", "list", properties=alice).text
        with WireClient(address) as wire, pytest.raises(ConnectionError):
            wire.call(MetadataRequest(topics=None), 12)
        shown = ended(server)
        assert f"moldau topics list --command-config {admin}" in shown
        assert password not in shown
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == (0o644 if path.name == "ca.pem" else 0o600)
    with serving(*options) as (server, address):
        assert "events" in command("topics", "list").text
        assert str(admin) not in ended(server)
    assert "would be open to everyone" in refused("--listen", "127.0.0.1:0", "--data-dir", str(data))


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("SASL_SSL://127.0.0.1:9092", ""),
        ("SASL_SSL://:9092", ""),
        ("SASL_SSL://127.0.0.1:0", ""),
        ("SASL_SSL://127.0.0.1:9093", " -b 127.0.0.1:9093"),
        ("SASL_SSL://0.0.0.0:9093", " -b 127.0.0.1:9093"),
        ("SASL_SSL://kafka.example:9092", " -b kafka.example:9092"),
        ("SASL_SSL://[::1]:9092", " -b [::1]:9092"),
    ],
)
def test_the_shown_commands_name_the_listener(listener: str, expected: str) -> None:
    assert bootstrap_option(load(overrides=[f"listeners={listener}"])) == expected


def test_an_interrupted_first_start_is_continued(run: Run, tmp_path: Path) -> None:
    """The directory exists, but the data directory is not formatted."""
    data = tmp_path / "data"
    options = ("--secure", "--listen", "127.0.0.1:0", "--data-dir", str(data))
    with serving(*options) as (server, _):
        ended(server)
    data.rename(tmp_path / "lost")
    with serving(*options) as (server, address):
        admin = tmp_path / "data-security" / "admin.properties"
        assert run("topics", "list", "-b", address, "--command-config", str(admin)).code == 0


def test_what_excludes_secure(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    common = ("--secure", "--listen", "127.0.0.1:0")
    assert "mutually exclusive" in refused(*common, "--ephemeral")
    assert "--secure chooses ssl.client.auth" in refused(*common, "--data-dir", data, "--set", "ssl.client.auth=none")
    other = ("--set", "listener.security.protocol.map=IN:PLAINTEXT")
    assert "another protocol than SASL_SSL" in refused("--secure", "--listen", "IN://127.0.0.1:0", "--data-dir", data,
                                                       *other)  # fmt: skip
    assert not Path(data).exists()
    with serving("--listen", "127.0.0.1:0", "--data-dir", data) as (server, _):
        ended(server)
    assert "is in use without --secure" in refused(*common, "--data-dir", data)
    assert not Path(f"{data}-security").exists()
