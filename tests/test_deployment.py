"""The settings in examples/deployment: clients are told the addresses that work outside of a container.

No container is built. The server gets the environment of the image and of the Compose file, with free ports.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.protocol.messages.metadata import MetadataRequest
from moldau.server.processes.free_ports import FreePorts
from moldau.testing.wire import WireClient

FOLDER = Path(__file__).parent.parent / "examples" / "deployment"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="reads the examples of a checkout")


def environment_of(name: str) -> dict[str, str]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    if name == "Dockerfile":
        return dict(re.findall(r"(KAFKA_[A-Z_]+)=(\S+)", text))
    return dict(re.findall(r'^ +(KAFKA_[A-Z_]+): "?([^"\n]+)"?$', text, re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "advertised"),
    [("Dockerfile", [("localhost", 9092)]), ("compose.yaml", [("localhost", 9092), ("moldau", 19092)])],
)
def test_clients_are_told_the_addresses_outside_of_the_container(
    name: str, advertised: list[tuple[str, int]], tmp_path: Path
) -> None:
    settings = environment_of(name)
    reserved = FreePorts()
    ports = [reserved("127.0.0.1", 0) for _ in advertised]
    free = iter(ports)
    settings["KAFKA_LISTENERS"] = re.sub(
        r"0\.0\.0\.0:\d+", lambda _: f"127.0.0.1:{next(free)}", settings["KAFKA_LISTENERS"]
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")}
    with subprocess.Popen(
        [sys.executable, "-m", "moldau", "serve", "--data-dir", str(tmp_path / "data")],
        env={**kept, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("moldau is ready: ")
            found = [advertised_at(f"127.0.0.1:{port}") for port in ports]
        finally:
            server.kill()
            reserved.close()
    assert found == advertised


def test_an_image_is_built_without_the_files_that_git_ignores() -> None:
    root = FOLDER.parent.parent
    ignored = (root / ".gitignore").read_text(encoding="utf-8").split()
    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"**/{name.strip('/')}" for name in ignored} | {".git"} <= set(lines)


def advertised_at(address: str) -> tuple[str, int]:
    with WireClient(address) as wire:
        (broker,) = wire.call(MetadataRequest(topics=None), 12).brokers
        return broker.host, broker.port
