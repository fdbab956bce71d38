"""The REST API of a registry in this process, on a real broker."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from moldau.cli.failure import Failure
from moldau.console.brokers import Brokers
from moldau.console.fetching import batches, fetch, load_topic
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.records import iter_records
from moldau.registry.parsed import Parsed
from moldau.registry.records import Schema
from moldau.registry.registry import Registry
from moldau.registry.schemas import parse
from moldau.registry.state import State
from moldau.registry.topic import SchemasTopic
from moldau.testing import Broker
from moldau.testing.routed_wire import RoutedWire
from moldau.testing.waiting import wait_until

INT = {"schema": '"int"'}
LONG = {"schema": '"long"'}
STRING = {"schema": '{"type": "string"}'}


class Server:
    """A registry that runs in a thread."""

    def __init__(self, bootstrap_servers: str, token: str | None = None) -> None:
        import uvicorn

        from moldau.registry.app import create_app

        self._brokers = Brokers(bootstrap_servers)
        self.state = State()
        self._topic = SchemasTopic(self._brokers, "_schemas", self.state)
        self._topic.start()
        listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = listening.getsockname()[1]
        app = create_app(Registry(self.state, self._topic), token=token)
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, name="registry")
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._topic.close()
        self._brokers.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            assert response.getheader("Content-Type") == "application/vnd.schemaregistry.v1+json"
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def register(self, subject: str, schema: Any) -> int:
        status, answer = self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", schema)
        assert status == 200, answer
        return int(answer["id"])

    def refused(self, method: str, path: str, body: Any = None) -> int:
        """The error code of a request that is refused."""
        status, answer = self.ask(method, path, body)
        assert answer.keys() == {"error_code", "message"}
        assert str(answer["error_code"]).startswith(str(status))
        return int(answer["error_code"])


Start = Callable[..., Server]


@pytest.fixture
def start(kafka: Broker) -> Iterator[Start]:
    started: list[Server] = []

    def start(token: str | None = None) -> Server:
        started.append(Server(kafka.bootstrap_servers, token))
        return started[-1]

    yield start
    for server in started:
        server.close()


def test_a_schema_has_one_id_in_all_subjects_and_its_record_has_the_format_of_confluent(
    start: Start, kafka: Broker
) -> None:
    registry = start()

    assert [registry.register("a", STRING), registry.register("b/ü", {"schema": '"string"'})] == [1, 1]
    assert registry.register("c", {"schema": '{"type": "object"}', "schemaType": "JSON"}) == 2
    assert registry.ask("GET", "/subjects") == (200, ["a", "b/ü", "c"])
    assert registry.ask("GET", "/schemas/ids/1") == (200, {"schema": '"string"'})
    assert registry.ask("GET", "/schemas/ids/1/subjects") == (200, ["a", "b/ü"])
    expected = {"subject": "c", "version": 1, "id": 2, "schemaType": "JSON", "schema": '{"type": "object"}'}
    assert registry.ask("GET", "/subjects/c/versions/latest") == (200, expected)
    assert registry.ask("POST", "/subjects/a", STRING)[1]["version"] == 1
    assert stored(kafka)[0] == (
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
    )


def stored(kafka: Broker) -> list[tuple[bytes | None, bytes | None]]:
    """The committed records of the topic."""
    brokers = Brokers(kafka.bootstrap_servers)
    with brokers.cluster() as cluster:
        fetched = fetch(cluster, load_topic(cluster, "_schemas"), {0: 0}, committed=True)[0]
        records = [each for batch, is_visible in batches(fetched) if is_visible for each in iter_records(batch)]
    brokers.close()
    return [(each.key, each.value) for each in records]


def test_a_registry_that_starts_reads_everything_from_the_topic(start: Start) -> None:
    first = start()
    first.register("a", INT)
    first.register("a", LONG)
    first.ask("PUT", "/config/a", {"compatibility": "FULL"})
    first.ask("DELETE", "/subjects/a/versions/1")

    second = start()

    assert second.ask("GET", "/subjects/a/versions") == (200, [2])
    assert second.ask("GET", "/subjects/a/versions?deleted=true") == (200, [1, 2])
    assert second.ask("GET", "/config/a") == (200, {"compatibilityLevel": "FULL"})
    assert second.register("b", STRING) == 3


def test_a_registry_that_starts_does_not_compile_all_protobuf_schemas_for_a_new_one(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    texts = [f'syntax = "proto3"; message M{number} {{ int32 a = 1; }}' for number in range(4)]
    ids = [
        first.register(f"s{number}", {"schemaType": "PROTOBUF", "schema": text}) for number, text in enumerate(texts)
    ]
    second = start()
    parsed: list[str] = []

    def counted(schema: Schema, imported: Any) -> Parsed:
        parsed.append(schema.text)
        return parse(schema, imported)

    monkeypatch.setattr("moldau.registry.registry.parse", counted)
    new = texts[0].replace("M0", "N")
    assert second.register("new", {"schemaType": "PROTOBUF", "schema": new}) not in ids
    assert parsed == [new]
    assert second.register("copy", {"schemaType": "PROTOBUF", "schema": texts[2].replace(" {", "{")}) == ids[2]


def test_registries_that_write_at_the_same_time_never_give_one_id_twice(start: Start) -> None:
    registries = [start(), start()]
    ids: dict[str, int] = {}

    def register(registry: Server, worker: int) -> None:
        for number in range(5):
            text = json.dumps({"type": "fixed", "name": f"F{worker}_{number}", "size": 1})
            ids[text] = registry.register(f"s{number}", {"schema": text})

    registries[0].ask("PUT", "/config", {"compatibility": "NONE"})
    threads = [threading.Thread(target=register, args=(each, index)) for index, each in enumerate(registries)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(ids.values()) == list(range(1, 11))
    for text, schema_id in ids.items():
        assert {
            json.loads(each.ask("GET", f"/schemas/ids/{schema_id}")[1]["schema"])["name"] for each in registries
        } == {json.loads(text)["name"]}
    assert [each.ask("GET", "/subjects/s3/versions") for each in registries] == [(200, [1, 2])] * 2


def test_compatibility_is_checked_when_a_schema_is_registered_and_on_request(start: Start) -> None:
    registry = start()
    registry.register("a", LONG)

    assert registry.refused("POST", "/subjects/a/versions", INT) == 409
    path = "/compatibility/subjects/a/versions/latest"
    assert registry.ask("POST", path, INT) == (200, {"is_compatible": False})
    status, answer = registry.ask("POST", f"{path}?verbose=true", INT)
    assert (status, answer["is_compatible"]) == (200, False)
    assert "TYPE_MISMATCH" in answer["messages"][0]
    assert registry.ask("PUT", "/config/a", {"compatibility": "FORWARD"}) == (200, {"compatibility": "FORWARD"})
    assert registry.register("a", INT) == 2


def test_deleting_is_soft_first(start: Start) -> None:
    registry = start()
    registry.register("a", INT)
    registry.register("a", LONG)

    assert registry.refused("DELETE", "/subjects/a/versions/1?permanent=true") == 40407
    assert registry.ask("DELETE", "/subjects/a/versions/1") == (200, 1)
    assert registry.refused("DELETE", "/subjects/a/versions/1") == 40406
    assert registry.refused("GET", "/subjects/a/versions/1") == 40402
    assert registry.ask("GET", "/schemas/ids/1")[0] == 200
    assert registry.ask("DELETE", "/subjects/a/versions/1?permanent=true") == (200, 1)
    assert registry.refused("GET", "/schemas/ids/1") == 40403
    assert registry.refused("DELETE", "/subjects/a?permanent=true") == 40405
    assert registry.ask("DELETE", "/subjects/a") == (200, [2])
    assert registry.refused("DELETE", "/subjects/a") == 40404
    assert registry.ask("DELETE", "/subjects/a?permanent=true") == (200, [2])
    assert registry.ask("GET", "/subjects?deleted=true") == (200, [])


def test_references_are_used_and_protected(start: Start) -> None:
    registry = start()
    registry.register("point", {"schema": '{"type": "fixed", "name": "geo.Point", "size": 8}'})
    reference = {"name": "geo.Point", "subject": "point", "version": 1}
    line = {"schema": '{"type": "array", "items": "geo.Point"}', "references": [reference]}

    assert registry.refused("POST", "/subjects/line/versions", {"schema": line["schema"]}) == 42201
    assert registry.register("line", line) == 2
    assert registry.ask("GET", "/schemas/ids/2")[1]["references"] == [reference]
    assert registry.ask("GET", "/subjects/point/versions/1/referencedby") == (200, [2])
    assert registry.refused("DELETE", "/subjects/point/versions/1") == 42206
    missing = {**line, "references": [{**reference, "version": 7}]}
    assert registry.refused("POST", "/subjects/line/versions", missing) == 42201


def test_modes_protect_subjects_and_import_ids(start: Start) -> None:
    registry = start()

    assert registry.ask("PUT", "/mode/a", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert registry.refused("POST", "/subjects/a/versions", INT) == 42205
    assert registry.ask("PUT", "/mode/a", {"mode": "IMPORT"})[0] == 200
    assert registry.register("a", {**INT, "id": 100, "version": 7}) == 100
    assert registry.refused("POST", "/subjects/a/versions", {**LONG, "id": 100}) == 42205
    assert registry.ask("GET", "/subjects/a/versions") == (200, [7])
    assert registry.ask("DELETE", "/mode/a") == (200, {"mode": "IMPORT"})
    assert registry.register("b", LONG) == 101


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/nothing", None, 404),
        ("PATCH", "/subjects", None, 405),
        ("GET", "/schemas/ids/7", None, 40403),
        ("GET", "/schemas/ids/99999999999", None, 404),
        ("GET", "/schemas/ids/x", None, 404),
        ("GET", "/subjects/no/versions", None, 40401),
        ("GET", "/subjects/no/versions/x", None, 42202),
        ("GET", "/subjects/no/versions/0", None, 42202),
        ("GET", "/config/no", None, 40408),
        ("GET", "/mode/no", None, 40409),
        ("PUT", "/config", {"compatibility": "SOMEHOW"}, 42203),
        ("PUT", "/mode", {"mode": "SOMEHOW"}, 42204),
        ("POST", "/subjects/a/versions", b"{", 400),
        pytest.param("POST", "/subjects/a/versions", b"[" * 100_000, 400, id="deep"),
        ("POST", "/subjects/a/versions", [], 400),
        ("POST", "/subjects/a/versions", {}, 42201),
        ("POST", "/subjects/a/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/a/versions", {"schema": r'{"type": "int", "doc": "\ud800"}'}, 42201),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "schemaType": "XML"}, 42201),
        ("POST", "/subjects/a/versions", {"schema": '{"type": 3}', "schemaType": "JSON"}, 42201),
        ("POST", "/subjects/a/versions", {"schema": "message", "schemaType": "PROTOBUF"}, 42201),
        ("POST", "/subjects/a/versions", {"schema": '"int"', "references": 3}, 42201),
        ("POST", "/subjects/:.context:a/versions", {"schema": '"int"'}, 42208),
        ("POST", "/subjects/a", {"schema": '"int"'}, 40401),
    ],
)  # fmt: skip
def test_an_invalid_request_is_refused_with_its_code(
    shared: Server, method: str, path: str, body: Any, code: int
) -> None:
    assert shared.refused(method, path, body) == code


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    """A registry for tests that register nothing."""
    with Broker() as broker:
        server = Server(broker.bootstrap_servers)
        yield server
        server.close()


def test_a_schema_that_the_topic_does_not_take_is_refused_and_the_next_one_is_stored(shared: Server) -> None:
    large = json.dumps({"type": "record", "name": "R", "doc": "x" * 2_000_000, "fields": []})

    assert shared.refused("POST", "/subjects/large/versions", {"schema": large}) == 42201
    assert shared.refused("POST", "/subjects/large/versions", b"x" * (11 << 20)) == 413
    assert shared.register("small", INT) == 1


def test_known_schemas_are_served_while_the_broker_is_away_and_writes_work_when_it_returns(
    start: Start, kafka: Broker
) -> None:
    registry = start()
    registry.register("a", INT)
    kafka.kill()

    assert registry.ask("GET", "/schemas/ids/1")[0] == 200
    assert registry.refused("POST", "/subjects/a/versions", LONG) == 50001
    assert registry.refused("GET", "/schemas/ids/2") == 50001

    kafka.start()

    assert registry.register("a", LONG) == 2


def test_known_schemas_are_served_while_the_topic_is_deleted_and_a_new_topic_replaces_them(
    start: Start, kafka: Broker
) -> None:
    registry = start()
    assert [registry.register("a", INT), registry.register("a", LONG)] == [1, 2]
    with RoutedWire(kafka.bootstrap_servers) as wire:
        wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="_schemas")], timeout_ms=10_000), 6)

    assert registry.ask("GET", "/schemas/ids/2")[0] == 200
    for method, path, body in (("GET", "/schemas/ids/3", None), ("POST", "/subjects/a/versions", STRING)):
        status, answer = registry.ask(method, path, body)
        assert (status, answer["error_code"]) == (500, 50001)
        assert "the topic _schemas does not exist; restart the registry" in answer["message"]

    second = start()  # creates the topic

    assert second.register("b", STRING) == 1
    assert registry.register("c", INT) == 2
    assert registry.ask("GET", "/subjects") == second.ask("GET", "/subjects") == (200, ["b", "c"])
    assert registry.ask("GET", "/schemas/ids/1") == (200, {"schema": '"string"'})


def test_an_unexpected_error_while_the_topic_is_read_is_logged_and_reading_continues(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry = start()
    failures, apply = iter(range(3)), registry.state.apply

    def failing(key: bytes | None, value: bytes | None, offset: int) -> None:
        if next(failures, None) is not None:
            raise ZeroDivisionError("not expected")
        apply(key, value, offset)

    monkeypatch.setattr(registry.state, "apply", failing)

    assert registry.register("a", INT) == 1
    expected = [
        "the topic _schemas cannot be read: ZeroDivisionError: not expected",
        "the topic _schemas is readable again",
    ]
    wait_until(lambda: [each.getMessage() for each in caplog.records] == expected)
    assert "Traceback" in caplog.text


def test_other_sites_other_hosts_and_requests_without_the_token_are_refused(start: Start) -> None:
    registry, protected = start(), start(token="secret")

    assert registry.ask("GET", "/subjects", Host="evil.example")[0] == 421
    assert registry.ask("GET", "/subjects", Origin="http://evil.example")[0] == 403
    assert protected.ask("GET", "/subjects")[0] == 401
    assert protected.ask("GET", "/subjects", Authorization="Bearer secret")[0] == 200
    assert protected.ask("GET", "/subjects", Authorization="Basic bW9sZGF1OnNlY3JldA==")[0] == 200
    assert protected.ask("GET", "/subjects", Authorization="Basic bW9sZGF1Ong=")[0] == 401


def test_a_registry_does_not_start_without_a_cluster() -> None:
    topic = SchemasTopic(Brokers("127.0.0.1:1"), "_schemas", State())

    with pytest.raises(Failure, match="cannot reach"):
        topic.start()
