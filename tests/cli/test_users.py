"""``moldau users`` against a server."""

from __future__ import annotations

from pathlib import Path

from moldau.testing.waiting import wait_until

from .conftest import Run


def users(ask: Run) -> list[dict[str, object]]:
    return list(ask("users", "list", "--json").json())


def test_users_are_set_listed_and_removed(ask: Run, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    made = ask("users", "set", "alice-of-users", "--password-file", str(password), "--iterations", "5000")
    assert made.lines == ["Set the password of alice-of-users (SCRAM-SHA-512)."]
    expected = {"user": "alice-of-users", "mechanism": "SCRAM-SHA-512", "iterations": 5000}
    wait_until(lambda: expected in users(ask), "the user")
    assert ["alice-of-users", "SCRAM-SHA-512", "5000"] in [line.split() for line in ask("users", "list").lines]
    removed = ask("users", "remove", "alice-of-users")
    assert removed.lines == ["Removed the credential of alice-of-users (SCRAM-SHA-512)."]
    wait_until(lambda: expected not in users(ask), "the end")
    refused = ask("users", "remove", "alice-of-users")
    assert refused.code == 1
    assert "there is no such credential" in refused.err


def test_a_password_must_be_readable(ask: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    for path, problem in ((empty, "is empty"), (tmp_path / "missing", "cannot be read")):
        refused = ask("users", "set", "bob", "--password-file", str(path))
        assert refused.code == 1
        assert problem in refused.err


def test_without_a_terminal_the_password_is_read_from_standard_input(ask: Run) -> None:
    assert ask("users", "set", "carol-of-users", input=b"secret\n").code == 0
    wait_until(lambda: "carol-of-users" in ask("users", "list").text, "the user")
    ask("users", "remove", "carol-of-users")
    refused = ask("users", "set", "carol-of-users")
    assert refused.code == 1
    assert "standard input has no password; use --password-file" in refused.err
