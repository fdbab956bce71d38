"""``moldau acls`` against a server with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.testing import Broker

from .conftest import Run

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    with Broker(config=CONFIG) as broker:
        yield broker.bootstrap_servers
        assert "Traceback" not in broker.log()


def test_acls_are_added_listed_explained_and_removed(run: Run, secured: str) -> None:
    def acls(*arguments: str, code: int = 0) -> list[str]:
        result = run("acls", *arguments, "--bootstrap-server", secured)
        assert result.code == code, result
        return list(result.lines)

    assert acls("explain", "alice", "read", "topic", "t", code=1) == [
        "Denied: User:alice READ TOPIC:t, because no ACL allows it, unless super.users or "
        "allow.everyone.if.no.acl.found of the server do. Add one: moldau acls add alice read topic t"
    ]
    assert acls("add", "alice", "read", "topic", "t") == ["Added: ALLOW User:alice READ TOPIC:LITERAL:t from *"]
    acls("add", "alice", "read", "group", "app-", "--prefix")
    acls("add", "User:*", "all", "topic", "secret", "--deny", "--host", "10.0.0.1")
    acls("add", "bob", "describe", "cluster")
    listed = [line.split() for line in acls("list")[1:]]
    assert listed == [
        ["User:*", "DENY", "ALL", "TOPIC", "LITERAL", "secret", "10.0.0.1"],
        ["User:alice", "ALLOW", "READ", "TOPIC", "LITERAL", "t", "*"],
        ["User:alice", "ALLOW", "READ", "GROUP", "PREFIXED", "app-", "*"],
        ["User:bob", "ALLOW", "DESCRIBE", "CLUSTER", "LITERAL", "kafka-cluster", "*"],
    ]
    assert acls("explain", "alice", "describe", "topic", "t") == [
        "Allowed: User:alice DESCRIBE TOPIC:t, by: ALLOW User:alice READ TOPIC:LITERAL:t from *"
    ]
    assert acls("explain", "bob", "read", "topic", "secret", "--host", "10.0.0.1", code=1) == [
        "Denied: User:bob READ TOPIC:secret, by: DENY User:* ALL TOPIC:LITERAL:secret from 10.0.0.1"
    ]
    result = run("acls", "explain", "bob", "read", "topic", "secret", "--bootstrap-server", secured)
    assert result.code == 1
    assert "Not considered without --host 10.0.0.1: DENY User:* ALL TOPIC:LITERAL:secret" in result.err
    assert acls("explain", "carol", "create", "topic", "a;b", code=1)[0].endswith("add carol create topic 'a;b'")
    acls("add", "carol", "create", "cluster")
    assert acls("explain", "carol", "create", "topic", "any") == [
        "Allowed: User:carol CREATE TOPIC:any, by: ALLOW User:carol CREATE CLUSTER:LITERAL:kafka-cluster from *"
    ]
    acls("remove", "carol", "create", "cluster")
    removed = acls("remove", "alice", "read", "group", "app-", "--prefix")
    assert removed == ["Removed: ALLOW User:alice READ GROUP:PREFIXED:app- from *"]
    assert len(acls("list")) == 4
    result = run("acls", "remove", "alice", "read", "group", "app-", "--bootstrap-server", secured)
    assert result.code == 1
    assert "there is no such ACL" in result.err


def test_a_server_without_an_authorizer(run: Run, ask: Run) -> None:
    refused = ask("acls", "list")
    assert refused.code == 1
    assert "(SECURITY_DISABLED)" in refused.err
