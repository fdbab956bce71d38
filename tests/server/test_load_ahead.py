"""Modules for requests are imported ahead of time, and a failed import is retried."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.api import request_class
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.server.apis import APIS
from moldau.server.requests import dispatch
from moldau.server.requests.load_ahead import PAUSE_MS, RETRY_MS, LoadAhead, modules_of_requests


class FakeTimers:
    """Callbacks with their delays. The test calls them."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[float, Any]] = deque()

    def call_after(self, delay_ms: float, callback: Any) -> Any:
        self.waiting.append((delay_ms, callback))

    def fire(self) -> float:
        delay_ms, callback = self.waiting.popleft()
        callback()
        return delay_ms


def test_each_step_loads_one_module_until_all_are_loaded() -> None:
    timers = FakeTimers()
    loaded: list[str] = []
    LoadAhead(timers, ["a.x", "sys", "a.y"], load=loaded.append).start()
    assert loaded == []
    timers.fire()
    assert loaded == ["a.x"]
    assert timers.fire() == PAUSE_MS
    assert loaded == ["a.x", "a.y"]  # `sys` was loaded already
    timers.fire()
    assert not timers.waiting


def test_loading_a_module_is_retried_after_an_error(caplog: Any) -> None:
    timers, tried = FakeTimers(), []

    def load(name: str) -> None:
        tried.append(name)
        if len(tried) < 3:
            raise OSError(24, "Too many open files", "x.py")

    LoadAhead(timers, ["a.x"], load=load).start()
    timers.fire()
    assert timers.fire() == RETRY_MS
    assert timers.fire() == RETRY_MS
    timers.fire()
    assert tried == ["a.x"] * 3
    assert not timers.waiting
    assert caplog.text.count("Cannot load") == 1


def test_no_file_is_opened_to_serve_any_api_after_loading() -> None:
    """Runs in a separate process, because the test process has imported all modules already."""
    program = """
import importlib, resource
from moldau.server.nodes import server
from moldau.server.requests import dispatch
from moldau.server.requests.load_ahead import modules_of_requests
for name in modules_of_requests():
    importlib.import_module(name)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for api in dispatch.APIS:
    for version in range(max(api.min_version, api.lowest_served), api.max_version + 1):
        dispatch.Route(api, version)
print("all")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout == "all\n", result.stderr


def test_openssl_is_not_loaded_ahead() -> None:
    """It takes 4 MB, which only a server with TLS or users needs. Runs in a separate process, as above."""
    program = """
import importlib, sys
from moldau.server.asyncio_without_tls import import_asyncio
import_asyncio()
from moldau.server.requests.load_ahead import modules_of_requests
for name in modules_of_requests():
    importlib.import_module(name)
print({"_hashlib", "_ssl"} & set(sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout == "set()\n", result.stderr


def test_no_file_is_opened_to_send_a_job_to_a_worker_after_loading() -> None:
    """Runs in a separate process, as above."""
    program = """
import importlib, io, resource, types
from moldau.log.config import LogConfig
from moldau.server.nodes import server
from moldau.server.concurrency import worker_pipe
from moldau.server.records.decode_jobs import Prepare
from moldau.server.requests.load_ahead import modules_of_requests
for name in modules_of_requests():
    importlib.import_module(name)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
batch = b"a batch"
message, rest = worker_pipe.parts(("job", 1, Prepare(batch, LogConfig(), 0).to_send()))
assert rest == batch
class Output(io.BytesIO):
    async def readexactly(self, count):
        return self.read(count)
try:
    worker_pipe.receive(types.SimpleNamespace(stdout=Output(message + batch))).send(None)
except StopIteration as end:
    print(end.value[2].batch)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout == "b'a batch'\n", result.stderr


NOT_FOR_STARTUP = {
    "dataclasses",  # each class costs half a millisecond
    "encodings.idna",
    "pickle",
    "moldau.coordinator.runtime",
    "moldau.log.batch_inspection",
    "moldau.protocol.messages.fetch",
    "moldau.server.steering",
}


def test_startup_does_not_import_modules_that_only_requests_or_tools_need(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from moldau.cli import serve
import moldau.server.main
from moldau.server.concurrency.event_loop import new_event_loop
from moldau.server.nodes.server import Server

async def start():
    server = Server(serve.load_config(serve.parse(["--listen", "127.0.0.1:0"]), {}), [sys.argv[1]])
    await server.start()
    print(*sys.modules)
    await server.stop()

with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(start())
"""
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert "moldau.server.broker" in loaded
    assert not loaded & NOT_FOR_STARTUP


def test_coordinators_are_not_loaded_ahead() -> None:
    """They use memory, and many servers never need them."""
    code = """
import importlib, sys
from moldau.server.requests.load_ahead import modules_of_requests
for name in modules_of_requests():
    importlib.import_module(name)
print(*(name for name in sys.modules if name.startswith("moldau.") and name.endswith(("coordinator.shard", ".kind"))))
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "\n"


def test_modules_of_all_apis_are_loaded_ahead() -> None:
    names = modules_of_requests()
    assert len(names) == len(set(names))
    for api in APIS:
        assert f"moldau.server.handlers.{api.module}" in names
        assert request_class(api.key).__module__ in names


def test_a_request_waits_while_its_handler_cannot_be_loaded(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[Any] = []
    load = dispatch.import_module  # type: ignore[attr-defined]

    def import_module(name: str, package: str) -> Any:
        if name.endswith("group_admin") and len(refused) < 2:
            refused.append(name)
            raise OSError(24, "Too many open files", name)
        return load(name, package)

    monkeypatch.setattr(dispatch, "import_module", import_module)
    with server.wire() as wire:
        wire.call(MetadataRequest(topics=[]), 9)
        first = wire.send(ListGroupsRequest(), 4)
        second = wire.send(MetadataRequest(topics=[]), 9)
        assert wire.receive().error_code == 0
        assert wire.receive().brokers
    assert first < second
    assert len(refused) == 2
    server.wait_until(lambda: server.network.budget.used_bytes == 0)


def test_a_request_that_waits_for_its_handler_is_freed_when_its_client_disconnects(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []
    freed: list[Any] = []
    load = dispatch.import_module  # type: ignore[attr-defined]

    def import_module(name: str, package: str) -> Any:
        if name.endswith("group_admin") and not freed:
            refused.append(name)
            raise OSError(24, "Too many open files", name)
        return load(name, package)

    monkeypatch.setattr(dispatch, "import_module", import_module)
    with server.wire() as wire:
        wire.send(ListGroupsRequest(types_filter=["x" * 10_000] * 20), 5)
        server.wait_until(lambda: refused)
        assert server.call(lambda: server.network.budget.used_bytes) > 100_000
    server.wait_until(lambda: not server.network.connections)
    freed.append(True)
    server.wait_until(lambda: not len(server.broker.slices))
    server.wait_until(lambda: server.network.budget.used_bytes == 0)


def test_a_coordinator_that_cannot_be_loaded_is_unavailable(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("group_settings", "groups", "transaction_settings", "transactions"):
        monkeypatch.delitem(sys.modules, f"moldau.server.coordination.{name}", raising=False)
        monkeypatch.delattr(sys.modules["moldau.server.coordination"], name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [FailingFinder(), *sys.meta_path])
    with server.wire() as wire:
        for key_type in (0, 1):
            assert wire.call(FindCoordinatorRequest(key="g", key_type=key_type), 3).error_code == 15


class FailingFinder:
    """Finds the modules of coordinators but has no file descriptor to read them."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name.startswith(("moldau.server.coordination.group", "moldau.server.coordination.transaction")):
            raise OSError(24, "Too many open files", name)
