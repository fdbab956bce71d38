"""``docs/command_line.md`` documents every command and every option."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from moldau.cli import commands

PAGE = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")


# The options of all commands that connect to a server.
OF_ALL = ("bootstrap_server", "command_config", "command_property")


def all_commands() -> Iterator[tuple[str, str, click.Command]]:
    """Section of the page, name, command; for all commands that are not command groups."""
    context = click.Context(commands.moldau)
    for name in commands.moldau.list_commands(context):
        command = commands.moldau.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for sub_name, sub_command in command.commands.items():
                yield name, sub_name, sub_command
        else:
            yield name, name, command


def section(name: str) -> str:
    return next(part for part in PAGE.split("\n## ") if part.startswith((f"`moldau {name}`", f"`moldau {name} ")))


@pytest.mark.parametrize(("name", "sub_name", "command"), list(all_commands()), ids=lambda value: str(value)[:20])
def test_options_are_documented(name: str, sub_name: str, command: click.Command) -> None:
    text = section(name)
    assert sub_name in text
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden and parameter.name not in OF_ALL:
            for option in parameter.opts:
                assert f"`{option}" in text, option
    for option in OF_ALL:
        assert f"`--{option.replace('_', '-')} " in PAGE
