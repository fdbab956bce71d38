"""The entry point: exit codes, help, and failures without tracebacks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from moldau.cli import commands

from .conftest import Run

COMMANDS = [
    [],
    ["serve"],
    ["topics"],
    ["topics", "list"],
    ["topics", "create"],
    ["topics", "describe"],
    ["topics", "alter"],
    ["topics", "delete"],
    ["produce"],
    ["consume"],
    ["configs"],
    ["configs", "describe"],
    ["configs", "set"],
    ["configs", "delete"],
    ["log"],
    ["groups"],
    ["groups", "list"],
    ["groups", "describe"],
    ["groups", "offsets"],
    ["groups", "reset"],
    ["groups", "delete"],
    ["groups", "delete-offsets"],
    ["transactions"],
    ["transactions", "list"],
    ["transactions", "describe"],
    ["transactions", "abort"],
    ["transactions", "find-hanging"],
    ["log", "dump"],
    ["log", "verify"],
    ["log", "repair"],
    ["log", "compact"],
    ["log", "dirs"],
    ["users"],
    ["users", "list"],
    ["users", "set"],
    ["users", "remove"],
    ["acls"],
    ["acls", "list"],
    ["acls", "add"],
    ["acls", "remove"],
    ["acls", "explain"],
    ["tokens"],
    ["tokens", "create"],
    ["tokens", "list"],
    ["tokens", "renew"],
    ["tokens", "expire"],
    ["quotas"],
    ["quotas", "list"],
    ["quotas", "set"],
    ["quotas", "remove"],
    ["tls"],
    ["tls", "make"],
    ["cluster"],
    ["top"],
    ["doctor"],
    ["spark"],
    ["spark", "archive"],
    ["spark", "audit"],
    ["spark", "compact"],
    ["spark", "replay"],
    ["users"],
    ["users", "list"],
    ["users", "set"],
    ["users", "remove"],
    ["format"],
    ["bench"],
    ["conformance"],
    ["conformance", "run"],
    ["conformance", "list"],
    ["conformance", "explain"],
    ["conformance", "compare"],
    ["conformance-client"],
    ["console"],
    ["registry"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_examples_of_the_command(run: Run, command: list[str]) -> None:
    helped = run(*command, "--help")
    assert helped.code == 0
    assert "Examples:" in helped.text
    assert f"  {' '.join(['moldau', *command])}" in helped.text
    assert run(*command, "-h").out == helped.out
    assert "..." not in helped.text.partition("\nCommands:")[2]  # click shortens long summaries


def test_list_of_commands_is_complete() -> None:
    context = commands.moldau.make_context("moldau", ["doctor"])
    assert set(commands.moldau.list_commands(context)) == {command[0] for command in COMMANDS if command}


def test_version(run: Run) -> None:
    assert run("--version").text.startswith("moldau 0.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["brew"], "No such command 'brew'. Commands: serve, topics, produce, "),
        (["tpoics", "list"], "No such command 'tpoics'. Did you mean topics?"),
        (["Serve"], "No such command 'Serve'. Did you mean serve"),
        (["topics", "lst"], "No such command 'lst'. Did you mean list?"),
        (["groups", "delete-ofsets"], "No such command 'delete-ofsets'. Did you mean delete-offsets"),
        (["spark", "brew"], "No such command 'brew'. Commands: archive, audit, compact, replay."),
        (["topics", "list", "--jsn"], "--json"),
        (["serve", "--ephemral"], "--ephemeral"),
        (["topics", "list", "--brew"], "No such option '--brew'"),
        (["topics", "create"], "Missing argument 'TOPIC...'"),
        (["serve", "--brew"], "No such option '--brew'"),
        (["serve", "--listen"], "requires an argument"),
        (["topics", "list", "--bootstrap-server", "host:port"], "'host:port' is not HOST:PORT"),
        (["topics", "list", "--bootstrap-server", ""], "at least one HOST:PORT"),
        (["topics", "list", "-b", "http://localhost:9092"], "'http://localhost:9092' is a URL; use localhost:9092"),
        (["topics", "list", "-b", "h:1,PLAINTEXT://k:9092/x"], "'PLAINTEXT://k:9092/x' is a URL; use k:9092"),
        (["doctor", "-b", "https://localhost/"], "'https://localhost/' is a URL; use localhost"),
        (["spark", "audit", "-b", "http://localhost:9092"], "is a URL; use localhost:9092"),
    ],
)
def test_usage_errors_have_exit_code_2(run: Run, arguments: list[str], words: str) -> None:
    refused = run(*arguments)
    assert refused.code == 2
    assert words in refused.err
    assert refused.out == b""


def commands_with_an_address() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(commands.moldau)
    for name in commands.moldau.list_commands(context):
        command = commands.moldau.get_command(context, name)
        assert command is not None
        below = command.commands.items() if isinstance(command, click.Group) else [("", command)]
        for sub_name, each in below:
            if any(parameter.name == "bootstrap_server" for parameter in each.params):
                yield f"{name} {sub_name}".strip(), each


@pytest.mark.parametrize(("name", "command"), list(commands_with_an_address()))
def test_every_command_takes_its_default_address_from_the_variable(
    name: str, command: click.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (option,) = (parameter for parameter in command.params if parameter.name == "bootstrap_server")

    def address(*given: str) -> object:
        context = click.Context(command)
        arguments = list(given)
        parser = command.make_parser(context)
        values, _, _ = parser.parse_args(arguments)
        option.handle_parse_result(context, values, arguments)
        return context.params["bootstrap_server"]

    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    assert address() == "127.0.0.1:9092"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "one:1,two:2")
    assert address() == "one:1,two:2"
    assert address("-b", "three:3") == "three:3"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "")
    assert address() == "127.0.0.1:9092"
    assert "KAFKA_BOOTSTRAP_SERVERS" in command.get_help(click.Context(command))


def test_variable_names_the_server(run: Run, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", bootstrap_servers)
    assert run("topics", "list").code == 0


def test_wrong_address_in_the_variable_names_the_variable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "http://localhost:9092")
    refused = run("topics", "list")
    assert refused.code == 2
    assert "environment variable KAFKA_BOOTSTRAP_SERVERS: 'http://localhost:9092' is a URL" in refused.err


def test_unreachable_server_is_one_clear_message(run: Run, unused_port: int) -> None:
    for command in (["topics", "list"], ["consume", "t"], ["produce", "t"], ["configs", "describe", "topic", "t"]):
        failed = run(*command, "--bootstrap-server", f"127.0.0.1:{unused_port}")
        assert failed.code == 1
        assert failed.err.startswith(f"moldau: cannot reach 127.0.0.1:{unused_port}: connection refused\n")
        assert "moldau serve" in failed.err


def test_second_address_is_tried(run: Run, bootstrap_servers: str, unused_port: int) -> None:
    listed = run("topics", "list", "--bootstrap-server", f"127.0.0.1:{unused_port},{bootstrap_servers}")
    assert listed.code == 0


def test_unexpected_error_is_one_line_or_a_traceback_with_the_variable(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: list[str]) -> int:
        raise RuntimeError("out of paper")

    monkeypatch.setattr(commands, "run", fail)
    monkeypatch.delenv("MOLDAU_TRACEBACK", raising=False)
    failed = run("doctor")
    assert failed.code == 1
    assert failed.err.startswith("moldau: RuntimeError: out of paper\n")
    monkeypatch.setenv("MOLDAU_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        commands.run(["doctor"])


def test_closed_pipe_is_not_reported(tmp_path: Path) -> None:
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    entries = 50_000
    checkpoint.write_text(f"0\n{entries}\n" + "".join(f"topic {number} 0\n" for number in range(entries)))
    command = subprocess.Popen(
        [sys.executable, "-m", "moldau", "log", "dump", str(checkpoint)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert command.stdout is not None
    assert command.stderr is not None
    assert command.stdout.readline().startswith(b"topic topic")
    command.stdout.close()
    assert command.stderr.read() == b""
    assert command.wait(60) == 1
    command.stderr.close()
