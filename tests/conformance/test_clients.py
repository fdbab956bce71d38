"""The layer `clients`: which clients run, their processes, the proxy that records them, and what a failure says.

`compat_tests/test_conformance_clients.py` runs the cases with the clients.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cli.conformance import CLIENTS
from moldau.conformance import catalog, real_clients
from moldau.conformance.case import Case, Layer
from moldau.conformance.check import Check
from moldau.conformance.client_jobs import ClientJobs
from moldau.conformance.exchange import Recorder
from moldau.conformance.outcome import InconclusiveError, Verdict
from moldau.conformance.recording_proxy import RecordingProxy
from moldau.conformance.runner import Runner
from moldau.conformance.target import Security, Target
from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing import Broker
from moldau.testing.certificates import certificate
from moldau.testing.clients import CLIENT_NAMES, installed
from moldau.testing.waiting import wait_until
from moldau.testing.wire import WireClient

from .fake_servers import Proxy, fake_server
from .samples import sample

# A program that never responds, and whose child does not end with its input.
HANGS = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
sys.stdin.readline()
path = pathlib.Path(sys.argv[1])
path.with_suffix(".new").write_text(str(child.pid))
path.with_suffix(".new").rename(path)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def target(broker: Broker) -> Target:
    found = Target(broker.bootstrap_servers, patience=4.0)
    found.describe()
    return found


def of_client(body: object, client: str = "kcat") -> Case:
    return sample(f"clients.sample.{client}", body, layer=Layer.CLIENTS, client=client, arguments=(client,))  # type: ignore[arg-type]


# Which clients run


def test_each_case_of_the_layer_has_a_client_at_the_end_of_its_id() -> None:
    cases = catalog.select(layers=[Layer.CLIENTS])
    assert cases == catalog.select(areas=["clients"])
    assert {case.client for case in cases} == set(CLIENT_NAMES)
    assert [case.id for case in cases if case.id.rpartition(".")[2] != case.client] == []
    assert [case.id for case in catalog.all_cases().values() if case.client and case.layer is not Layer.CLIENTS] == []


def test_each_scenario_runs_with_the_clients_that_have_its_features() -> None:
    scenarios = {case.id.rpartition(".")[0] for case in catalog.select(areas=["clients"])}
    assert len(scenarios) >= 14
    for scenario in ("clients.records", "clients.group", "clients.order", "clients.codec.zstd", "clients.metadata"):
        assert len(catalog.select(ids=[scenario])) == len(CLIENT_NAMES)
    assert "clients.transaction.kcat" not in catalog.all_cases()


def test_the_option_has_the_names_of_the_clients() -> None:
    assert (*CLIENT_NAMES, real_clients.ALL) == CLIENTS


def test_clients_run_if_they_are_named_or_if_their_cases_are() -> None:
    assert real_clients.selected(()) == ()
    assert real_clients.selected((), areas=["produce"]) == ()
    assert real_clients.selected(("kcat", "java")) == ("kcat", "java")
    assert real_clients.selected(("kcat", "all")) == CLIENT_NAMES
    assert real_clients.selected((), areas=["clients"]) == CLIENT_NAMES
    assert real_clients.selected((), layers=["clients"]) == CLIENT_NAMES
    assert real_clients.selected((), ids=["clients.group.kcat"]) == CLIENT_NAMES
    assert real_clients.selected(("kcat",), areas=["clients"]) == ("kcat",)


def test_a_client_that_is_not_selected_does_not_apply(target: Target) -> None:
    (result,) = Runner(target).run([of_client(lambda c, client: None)])
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.reason == "kcat is run with --clients kcat or --clients all"


def test_a_client_that_is_not_installed_does_not_apply(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    real_clients.what_is_missing.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    try:
        results = Runner(target, clients=CLIENT_NAMES).run(
            [of_client(lambda c, client: None, client) for client in CLIENT_NAMES]
        )
    finally:
        real_clients.what_is_missing.cache_clear()
    assert {result.verdict for result in results} == {Verdict.NOT_APPLICABLE}
    reasons = {str(result.case.client): result.reason for result in results}
    needs = "cannot run on this machine: it needs"
    assert reasons["kcat"].startswith(f"kcat {needs} kcat (Debian: apt-get install kcat")
    assert reasons["aiokafka"] == f"aiokafka {needs} the package aiokafka (pip install aiokafka)"
    assert "Java" in reasons["java"]
    assert "Go" in reasons["franz-go"]


def test_a_program_that_cannot_be_built_is_inconclusive(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(client: str) -> None:
        raise RuntimeError(f"the program around {client} cannot be built: no network")

    monkeypatch.setattr(installed, "build", fails)
    monkeypatch.setattr(real_clients, "what_is_missing", lambda client: None)
    results = Runner(target, clients=["kcat"]).run([of_client(lambda c, client: None) for _ in range(2)])
    assert {result.verdict for result in results} == {Verdict.INCONCLUSIVE}
    assert results[0].reason == "the program around kcat cannot be built: no network"


def test_the_versions_of_installed_clients_are_known() -> None:
    for client in CLIENT_NAMES:
        if installed.what_is_missing(client) is None:
            assert installed.version_of(client)[0].isdigit(), client


# Processes


def started(target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Runner, Path]:
    """A runner whose clients hang, and the file with the ID of the child of the client's process."""
    pid = tmp_path / "pid"
    monkeypatch.setattr(real_clients, "adapter_command", lambda client: [sys.executable, "-c", HANGS, str(pid)])
    monkeypatch.setattr(real_clients, "what_is_missing", lambda client: None)
    monkeypatch.setattr(installed, "build", lambda client: None)
    monkeypatch.setattr(installed, "version_of", lambda client: "1")
    real_clients.title_of.cache_clear()
    return Runner(target, clients=["kcat"]), pid


def is_running(pid: int) -> bool:
    """Whether a process exists, and is not one that has ended and waits for its parent."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def consumes(c: Check, client: str) -> None:
    ClientJobs(c, client).do("consume", topic="t", partition=0, start=0, options={})


def test_an_interruption_ends_the_programs_of_a_client(
    target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner, pid = started(target, monkeypatch, tmp_path)

    def interrupt() -> None:
        wait_until(pid.exists, "the job of the client")
        runner.interrupt()

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    (result,) = runner.run([of_client(consumes)])
    interrupting.join()
    assert (result.verdict, result.reason) == (Verdict.INCONCLUSIVE, "interrupted")
    wait_until(lambda: not is_running(int(pid.read_text())), "the end of the child")


def test_a_client_that_hangs_is_killed_with_its_programs(
    target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner, pid = started(target, monkeypatch, tmp_path)

    def hangs(c: Check, client: str) -> None:
        jobs = ClientJobs(c, client)
        started = jobs.start("consume", topic="t", partition=0, start=0, options={})
        wait_until(pid.exists, "the job of the client")
        c._deadline = 0.0
        jobs.finished(started, "consume")

    (result,) = runner.run([of_client(hangs)])
    assert result.verdict is Verdict.FAILED
    assert result.what == "kcat 1: kcat -C -e"
    assert "still running" in result.actual
    wait_until(lambda: not is_running(int(pid.read_text())), "the end of the child")


def test_few_processes_of_a_client_wait_for_the_next_case(monkeypatch: pytest.MonkeyPatch) -> None:
    echoes = "import sys\nfor line in sys.stdin: print('{\"id\": 1}', flush=True)"
    monkeypatch.setattr(real_clients, "adapter_command", lambda client: [sys.executable, "-c", echoes])
    clients = real_clients.RealClients(["kcat"])
    adapters = [clients.take("kcat") for _ in range(3)]
    assert [adapter.do("any", 60.0) for adapter in adapters] == [{"id": 1}] * 3
    for adapter in adapters:
        clients.give_back("kcat", adapter)
    assert {clients.take("kcat") for _ in range(2)} == set(adapters[:2])
    assert clients.take("kcat") not in adapters
    with pytest.raises(InconclusiveError, match="has been closed"):
        adapters[2].do("any", 60.0)
    clients.close()
    with pytest.raises(InconclusiveError, match="the run has ended"):
        clients.take("kcat")


# What a failure says


def test_a_failure_has_the_call_of_the_client_and_its_requests(broker: Broker, target: Target) -> None:
    fault = broker.faults.error(ApiKey.CREATE_PARTITIONS, ErrorCode.POLICY_VIOLATION)
    try:
        (result,) = Runner(target, clients=["kafka-python"]).run(catalog.select(ids=["clients.topics.kafka-python"]))
    finally:
        fault.remove()
    assert result.verdict is Verdict.FAILED
    assert result.what.startswith("kafka-python ")
    assert result.what.endswith(": KafkaAdminClient.create_partitions")
    assert result.expected == "no error"
    assert result.actual.startswith("POLICY_VIOLATION: ")
    (response,) = [frame for frame in result.frames if frame.title.startswith("CreatePartitions") and not frame.sent]
    assert response.decoded()[1].results[0].error_code == ErrorCode.POLICY_VIOLATION
    (request,) = [frame for frame in result.frames if frame.title.startswith("CreatePartitions") and frame.sent]
    assert request.decoded()[0].client_id.startswith("kafka-python")


# The proxy


def test_the_proxy_replaces_the_addresses_of_brokers_and_records(target: Target) -> None:
    recorder = Recorder()
    with RecordingProxy(target, recorder) as proxy, WireClient(proxy.address) as wire:
        (named,) = wire.call(MetadataRequest(topics=[])).brokers
        assert proxy.address_for(target.address) == proxy.address == f"{named.host}:{named.port}"
        for version in (3, 4):
            named_group = {"key": "group"} if version == 3 else {"coordinator_keys": ["group"]}
            answer = wire.call(FindCoordinatorRequest(key_type=0, **named_group), version)
            found = answer.coordinators[0] if version == 4 else answer
            assert f"{found.host}:{found.port}" == proxy.address
    titles = [frame.title for frame in recorder.frames()]
    assert titles[:2] == ["ApiVersions v0 request", "ApiVersions v0 response"]
    assert titles[-2:] == ["FindCoordinator v4 request", "FindCoordinator v4 response"]
    metadata = next(frame for frame in recorder.frames() if frame.title == titles[3])
    assert metadata.decoded()[1].brokers[0].port == int(target.address.rpartition(":")[2]), "the server's own address"


def test_a_response_with_extra_bytes_passes_unchanged(broker: Broker) -> None:
    with Proxy(broker.bootstrap_servers) as server:
        server.extra = b"\0"
        with RecordingProxy(Target(server.address), Recorder()) as proxy, WireClient(proxy.address) as wire:
            request = MetadataRequest(topics=[])
            wire.send(request, 12)
            assert wire.receive_frame()[-1:] == b"\0"


def test_bytes_that_are_not_frames_pass(target: Target) -> None:
    with RecordingProxy(target, Recorder()) as proxy, WireClient(proxy.address) as wire:
        wire.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        assert wire.closed_by_server()


def test_the_end_of_a_connection_passes_in_both_directions(target: Target) -> None:
    with RecordingProxy(target, Recorder()) as proxy:
        peer = socket.create_connection(("127.0.0.1", int(proxy.address.rpartition(":")[2])), timeout=60)
        with peer:
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(1) == b""
        with WireClient(proxy.address, timeout_s=60) as wire:
            wire.call(MetadataRequest(topics=[]))
            proxy.close()
            assert wire.closed_by_server()


def test_the_proxy_connects_with_the_security_of_the_target(broker: Broker, tmp_path: Path) -> None:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem = certificate(tmp_path)
    server_side.load_cert_chain(pem)

    def serve(peer: socket.socket) -> None:
        with (
            server_side.wrap_socket(peer, server_side=True) as secured,
            secured.makefile("rb") as requests,
            WireClient(broker.bootstrap_servers) as server,
        ):
            while length := requests.read(4):
                server.send_frame(requests.read(int.from_bytes(length, "big")))
                frame = server.receive_frame()
                secured.sendall(len(frame).to_bytes(4, "big") + frame)

    with fake_server(serve) as address:
        target = Target(address, Security(tls=ssl.create_default_context(cafile=str(pem))))
        recorder = Recorder()
        with RecordingProxy(target, recorder) as proxy, WireClient(proxy.address) as wire:
            for version in (1, 12):
                (named,) = wire.call(MetadataRequest(topics=None), version).brokers
                assert f"{named.host}:{named.port}" == proxy.address_for(broker.bootstrap_servers)
    assert [frame.title for frame in recorder.frames()][-1] == "Metadata v12 response"
