"""The table of commands. A command's module is imported when the command runs or shows its help."""

from importlib import import_module
from typing import Final

import click

from .failure import Failure
from .suggestions import CommandGroup

# Command to module. Each module has a click command named ``command``; `serve` builds one (see serve.py). The
# console and registry are packages in the layers above, because they are built on the client of these commands.
_MODULES: Final = {
    "topics": "topics",
    "produce": "produce",
    "consume": "consume",
    "groups": "groups",
    "transactions": "transactions",
    "configs": "configs",
    "users": "users",
    "acls": "acls",
    "tokens": "tokens",
    "quotas": "quotas",
    "tls": "tls",
    "cluster": "describe_cluster",
    "top": "top.command",
    "format": "format_directories",
    "log": "log",
    "spark": "spark",
    "doctor": "doctor",
    "bench": "bench",
    "conformance": "conformance",
    "conformance-client": "conformance_client",
    "console": ".console.command",
    "registry": ".registry.command",
}

HELP: Final = """\b
Moldau is a Kafka server without a JVM, and these are its tools.
They speak Kafka's protocol and also work with Apache Kafka.

\b
Examples:
  moldau serve
  moldau topics create events --partitions 6
  echo hello | moldau produce events
  moldau consume events --from-beginning
  moldau doctor
"""


class _Commands(CommandGroup):
    def list_commands(self, context: click.Context) -> list[str]:
        return ["serve", *_MODULES]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name == "serve":
            from . import serve

            return serve.command()
        if name not in _MODULES:
            return None
        module = import_module(f".{_MODULES[name]}", __package__)
        command = module.command
        assert isinstance(command, click.Command)
        return command


def _print_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        from .. import __version__

        click.echo(f"moldau {__version__}")
        context.exit()


moldau = _Commands(
    "moldau",
    help=HELP,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        )
    ],
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: list[str]) -> int:
    """Run the command in ``arguments``; returns the exit code."""
    try:
        result = moldau.main(arguments, prog_name="moldau", standalone_mode=False)
    except click.Abort:
        return 130
    except Failure as failure:
        failure.show()
        return failure.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return result if isinstance(result, int) else 0
