"""``moldau doctor``: is there a Kafka server, can clients work with it, and what is to be done if not."""

import time
from typing import TYPE_CHECKING

import click

from .client import bootstrap_option, parse_addresses
from .output import print_json

if TYPE_CHECKING:
    from .examination import Finding

_MARKS = {"ok": ("ok     ", "green"), "note": ("note   ", "yellow"), "problem": ("PROBLEM", "red")}


@click.command("doctor", short_help="Find out what is wrong with a server, and what to do.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per finding.")
@bootstrap_option
@click.pass_context
def command(context: click.Context, as_json: bool, bootstrap_server: str) -> None:
    """Examine a server as a client meets it: whether it can be reached and speaks Kafka's protocol, whether the
    addresses it sends clients to can be reached, whether partitions have leaders and replicas are in sync, whether
    disks are full and clocks agree. Nothing is changed by it.

    The exit code is 0 when there is no problem, and 1 when there is one.

    \b
    Examples:
      moldau doctor
      moldau doctor --bootstrap-server kafka.example:9092
      moldau doctor --json --bootstrap-server broker1:9092,broker2:9092
    """
    from .examination import Level, examine

    problems = 0
    for finding in examine(parse_addresses(bootstrap_server), now_ms=time.time_ns() // 1_000_000):
        problems += finding.level is Level.PROBLEM
        if as_json:
            print_json({"level": finding.level.value, "text": finding.text, "advice": finding.advice})
        else:
            _print(finding)
    if not as_json:
        print()
        print("No problems." if not problems else "1 problem." if problems == 1 else f"{problems} problems.")
    context.exit(1 if problems else 0)


def _print(finding: "Finding") -> None:
    mark, color = _MARKS[finding.level.value]
    click.echo(f"{click.style(mark, fg=color)}  {finding.text}")
    if finding.advice:
        click.echo(f"{' ' * len(mark)}  -> {finding.advice}")
