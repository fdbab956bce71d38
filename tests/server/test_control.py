"""`moldau serve --control`: faults, requests and commands over HTTP, in a real server process."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from moldau.protocol.api import ApiKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing import go_programs, jvm
from moldau.testing.apache_kafka import free_ports
from moldau.testing.builders import batch, produce_request
from moldau.testing.requirements import require_program
from moldau.testing.topic_requests import create_topic
from moldau.testing.wire import WireClient


class Served(NamedTuple):
    kafka: str
    port: int

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """The status and the JSON of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            data = None if body is None else body if isinstance(body, str) else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    (port,) = free_ports(1)
    command = ["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--control", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "moldau", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready.startswith("moldau is ready: ")
    served = Served(ready.split()[-1], port)
    create_topic(served.kafka, "orders")
    yield served
    process.terminate()
    _, log = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "Traceback" not in log
    assert f"Tests control this server at http://127.0.0.1:{port}" in log


@pytest.fixture(autouse=True)
def _no_faults(served: Served) -> Iterator[None]:
    yield
    assert served.ask("DELETE", "/faults")[0] == 200


def produce(served: Served, topic: str) -> int:
    with WireClient(served.kafka) as wire:
        answer = wire.call(produce_request(topic, batch(b"value")), 9)
        return int(answer.responses[0].partition_responses[0].error_code)


def test_a_fault(served: Served) -> None:
    fault = {"kind": "error", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "topic": "orders", "times": 1}
    status, answer = served.ask("POST", "/faults", fault)
    assert status == 201
    assert produce(served, "orders") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(served, "orders") == 0
    assert served.ask("GET", f"/faults/{answer['fault']}") == (200, {"triggered": 1})
    assert served.ask("DELETE", f"/faults/{answer['fault']}") == (200, {})
    assert served.ask("GET", f"/faults/{answer['fault']}") == (200, {"triggered": 0})


def test_requests(served: Served) -> None:
    since = served.ask("GET", "/requests")[1]["next"]
    with WireClient(served.kafka, client_id="me") as wire:
        wire.call(MetadataRequest(topics=[]), 12)
    status, answer = served.ask("GET", f"/requests?since={since}&timeout_ms=10000")
    assert (status, answer["next"]) == (200, since + 1)
    (found,) = answer["requests"]
    assert base64.b64decode(found["data"])[:2] == int(ApiKey.METADATA).to_bytes(2, "big")
    assert (found["api"], found["version"], found["client_id"]) == ("Metadata", 12, "me")
    assert (found["request"]["topics"], found["request"]["allow_auto_topic_creation"]) == ([], True)
    assert served.ask("GET", f"/requests?since={since + 1}&timeout_ms=1")[1]["requests"] == []


def test_a_request_that_cannot_be_decoded_is_recorded(served: Served) -> None:
    since = served.ask("GET", "/requests")[1]["next"]
    with WireClient(served.kafka) as wire:
        wire.send_frame(b"\x7f\xff\0\x03\0\0\0\x01\xff\xff")
        assert wire.closed_by_server()
    (found,) = served.ask("GET", f"/requests?since={since}")[1]["requests"]
    assert (found["api"], found["version"], found["client_id"], found["request"]) == ("32767", 3, None, None)


def test_faults_of_kinds_with_arguments(served: Served) -> None:
    for fault in (
        {"kind": "cap versions", "highest": "2.8"},
        {"kind": "cap versions", "highest": {"0": 7}},
        {"kind": "advertise", "host": "broker.invalid", "port": 9092, "times": 1},
        {"kind": "move coordinator", "group": "billing"},
        {"kind": "stale metadata", "topic": "orders"},
        {"kind": "tagged fields"},
    ):
        assert served.ask("POST", "/faults", fault)[0] == 201, fault


def test_a_command(served: Served) -> None:
    create_topic(served.kafka, "rolled")
    produce(served, "rolled")
    assert served.ask("POST", "/commands/roll", {"topic": "rolled", "partition": 0}) == (200, {})
    status, answer = served.ask("POST", "/commands/roll", {"topic": "missing", "partition": 0})
    assert status == 409
    assert "missing-0" in answer["error"]
    waiting = {"group": "nobody", "members": 1, "timeout_ms": 1}
    assert served.ask("POST", "/commands/wait_group_stable", waiting)[0] == 409


def test_the_description_names_every_path_and_the_arguments_of_commands(served: Served) -> None:
    status, answer = served.ask("GET", "/openapi.json")
    assert (status, answer["openapi"]) == (200, "3.1.0")
    commands = {path: each for path, each in answer["paths"].items() if path.startswith("/commands/")}
    assert answer["paths"].keys() - commands.keys() == {"/faults", "/faults/{fault}", "/requests"}
    assert len(commands) == 8
    for path, each in commands.items():
        schema = each["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert set(schema["required"]) <= schema["properties"].keys()
        # No command has an argument of this name, so that each rejection names those that it has.
        status, rejected = served.ask("POST", path, {"color": "red"})
        assert (status, all(name in rejected["error"] for name in schema["properties"])) == (400, True), rejected


def test_commands_without_optional_arguments(served: Served) -> None:
    assert served.ask("POST", "/commands/set_clock", {"ahead_ms": 1000}) == (200, {})
    assert served.ask("POST", "/commands/set_clock", {"ahead_ms": 0}) == (200, {})
    assert served.ask("POST", "/commands/delete_old_segments") == (200, {})
    assert served.ask("POST", "/commands/compact", {"topic": "orders"})[0] == 409  # its cleanup.policy is delete


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "words"),
    [
        ("GET", "/nothing", None, {}, 404, "see /openapi.json"),
        ("PUT", "/nothing", {}, {}, 404, "see /openapi.json"),
        ("POST", "/commands/add_fault", {}, {}, 404, "there is no"),
        ("PUT", "/faults", {"kind": "delay"}, {}, 405, "only POST and DELETE"),
        ("PATCH", "/faults/1", {"times": 1}, {}, 405, "only GET and DELETE"),
        ("DELETE", "/requests", None, {}, 405, "only GET"),
        ("GET", "/commands/roll", None, {}, 405, "only POST"),
        ("BREW", "/openapi.json", None, {}, 405, "only GET"),
        ("PUT", "/faults", None, {"Origin": "http://evil.example"}, 403, "evil.example"),
        ("POST", "/faults", "{", {}, 400, "not JSON"),
        ("POST", "/faults", [1], {}, 400, "must be an object"),
        ("POST", "/faults", {"kind": "flood"}, {}, 409, "not a fault"),
        ("POST", "/faults", {"kind": "error", "api": "Bake"}, {}, 400, "no API 'Bake'"),
        ("POST", "/faults", {"kind": "error", "error": "TIRED"}, {}, 400, "no error 'TIRED'"),
        ("POST", "/faults", {"kind": "delay"}, {"Content-Type": "text/plain"}, 415, "application/json"),
        ("POST", "/commands/roll", {}, {}, 400, "the arguments of roll are topic, partition, not []"),
        ("POST", "/commands/roll", {"topic": "orders", "partition": "0"}, {}, 400, "type integer, not '0'"),
        ("POST", "/commands/set_clock", {"ahead_ms": True}, {}, 400, "type integer, not True"),
        ("GET", "/faults/one", None, {}, 400, "must be a number"),
        ("GET", "/requests?since=-1", None, {}, 400, "must be a number"),
        ("GET", "/requests", None, {"Host": "evil.example:80"}, 403, "evil.example"),
        ("GET", "/requests", None, {"Origin": "http://evil.example"}, 403, "evil.example"),
        ("DELETE", "/faults", None, {"Origin": "null"}, 403, "web page"),
        ("POST", "/faults", {"kind": "cap versions", "highest": "0.8"}, {}, 409, "known are 2.8"),
        ("POST", "/faults", {"kind": "cap versions", "highest": [1]}, {}, 409, "not a fault"),
        ("POST", "/faults", {"kind": "move coordinator"}, {}, 409, "name it as the group"),
        ("POST", "/faults", {"kind": "stale metadata", "api": "Fetch"}, {}, 409, "of Metadata only"),
        ("POST", "/faults", {"kind": "delay", "milliseconds": "100"}, {}, 409, "milliseconds is an integer"),
        ("POST", "/faults", {"kind": "delay", "milliseconds": -1}, {}, 409, "milliseconds is an integer"),
        ("POST", "/faults", {"kind": "error", "times": "2"}, {}, 409, "times is an integer"),
        ("POST", "/faults", {"kind": "error", "skip": True}, {}, 409, "skip is an integer"),
        ("POST", "/faults", {"kind": "error", "seed": [1]}, {}, 409, "seed is an integer"),
        ("POST", "/faults", {"kind": "error", "topic": 7}, {}, 409, "topic is a string"),
        ("POST", "/faults", {"kind": "error", "probability": "0.5"}, {}, 409, "probability is a number from 0 to 1"),
        ("POST", "/faults", {"kind": "error", "probability": 50}, {}, 409, "probability is a number from 0 to 1"),
        ("POST", "/faults", {"kind": "error", "versions": 3}, {}, 409, "not a fault"),
        ("POST", "/faults", {"kind": "error", "versions": [9, 3]}, {}, 409, "versions are the lowest and the highest"),
        ("POST", "/faults", {"kind": "advertise", "host": "a", "port": "1"}, {}, 409, "port is an integer"),
    ],
)
def test_invalid_requests_are_rejected(
    served: Served, method: str, path: str, body: object, headers: dict[str, str], status: int, words: str
) -> None:
    found, answer = served.ask(method, path, body, **headers)
    assert (found, words in answer["error"]) == (status, True), answer


def test_a_method_that_is_not_allowed_names_those_that_are(served: Served) -> None:
    """The body of the rejected request is not taken for another request."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
    for method in ("PUT", "HEAD"):
        connection.request(method, "/faults", "GET /requests HTTP/1.1\r\n\r\n", {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert (response.status, response.headers["Allow"]) == (405, "POST, DELETE")
        assert response.headers["Content-Type"] == "application/json"
        assert ("error" in json.loads(response.read())) if method == "PUT" else not response.read()
        assert response.will_close
    connection.close()


def test_a_request_that_is_not_http_is_rejected_as_json(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=120) as plain:
        plain.sendall(b"GET /faults HTTP/x\r\n\r\n")
        head, _, body = b"".join(iter(lambda: plain.recv(4096), b"")).partition(b"\r\n\r\n")
    assert b" 400 " in head.splitlines()[0]
    assert b"Content-Type: application/json" in head
    assert "HTTP/x" in json.loads(body)["error"]


@pytest.mark.parametrize("address", ["8082", "127.0.0.1:http", "127.0.0.1:99999", "192.0.2.1:8082"])
def test_an_address_that_is_not_usable_ends_the_start(address: str) -> None:
    command = [sys.executable, "-m", "moldau", "serve", "--ephemeral", "--listen", "127.0.0.1:0", "--control", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"moldau: --control {address}" in done.stderr
    assert "Traceback" not in done.stderr


# The examples of docs/conformance.md

PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "conformance.md"
ADDRESS: Final = '"http://127.0.0.1:8082"'
CLIENT: Final = 'Produce to "orders" with the client under test.'

with_page = pytest.mark.skipif(not PAGE.exists(), reason="reads the documentation of a checkout")


def example(language: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (found,) = (each for each in blocks if each.count(CLIENT) == 1)
    return str(found)


@with_page
def test_the_example_in_python() -> None:
    source, place = example("python"), f"# {CLIENT}"

    def client(address: str) -> None:
        create_topic(address, "orders")
        with WireClient(address) as wire:
            for error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE):
                answer = wire.call(produce_request("orders", batch(b"value"), acks=-1), 9)
                assert answer.responses[0].partition_responses[0].error_code == error

    names: dict[str, Any] = {"client": client}
    exec(compile(source.replace(place, "client(broker.bootstrap_servers)"), "the example", "exec"), names)
    assert names["fault"] is not None


def run_example(command: Sequence[str], served: Served, client: Callable[[], None]) -> str:
    """The output of a program that waits for a line where the client under test is used."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "CONTROL": f"http://127.0.0.1:{served.port}"},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = []
        for line in process.stdout:
            before.append(line)
            if line == "client\n":
                break
        else:
            pytest.fail("".join(before))
        client()
        output = process.communicate("\n", timeout=60)[0]
    assert process.returncode == 0, output
    return output


@pytest.mark.slow
@with_page
def test_the_example_in_go(served: Served, tmp_path: Path) -> None:
    require_program("go")
    source = example("go")
    for old, new in (
        (ADDRESS, 'os.Getenv("CONTROL")'),
        (f"// {CLIENT}", 'fmt.Println("client")\n\tbufio.NewReader(os.Stdin).ReadString(10)'),
    ):
        assert old in source
        source = source.replace(old, new)
    packages = ("bufio", "encoding/json", "fmt", "net/http", "os", "strings", "testing")
    imports = "".join(f'import "{package}"\n' for package in packages)
    (tmp_path / "example_test.go").write_text(f"package example\n\n{imports}\n{source}", encoding="utf-8")
    program = go_programs.built(tmp_path, "example", "test", "-c", "example_test.go")

    def client() -> None:
        for error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE):
            assert produce(served, "orders") == error

    output = run_example([str(program), "-test.v"], served, client)
    assert re.findall(r"Produce 9 moldau-testing (\S+)", output) == ["error", "error", "<nil>"]
    assert "PASS" in output


@pytest.mark.slow
@with_page
def test_the_example_in_java(served: Served, tmp_path: Path) -> None:
    require_program("javac")
    source = example("java")
    for old, new in (
        (ADDRESS, 'System.getenv("CONTROL")'),
        (f"// {CLIENT}", 'System.out.println("client");\n    System.in.read();'),
    ):
        assert old in source
        source = source.replace(old, new)
    packages = ("java.net.*", "java.net.http.*", "com.fasterxml.jackson.databind.*")
    imports = "".join(f"import {package};\n" for package in packages)
    main = "public static void main(String[] arguments) throws Exception { retries(); }"
    program = tmp_path / "Example.java"
    program.write_text(f"{imports}\npublic class Example {{\n{source}\n{main}\n}}\n", encoding="utf-8")

    def client() -> None:
        with WireClient(served.kafka) as wire, pytest.raises(ConnectionError):
            wire.call(produce_request("orders", batch(b"value")), 9)

    output = run_example(jvm.command(str(program)), served, client)
    assert re.findall(r"Produce 9 (\S+ ?\S+)", output) == ['"disconnect after"']
