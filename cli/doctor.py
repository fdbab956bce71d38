"""``moldau doctor``: check that a Kafka server is reachable and usable, and suggest fixes."""

import time
from typing import TYPE_CHECKING

import click

from .client import bootstrap_option, parse_addresses
from .output import print_json

if TYPE_CHECKING:
    from .diagnosis import Finding

_MARKS = {"ok": ("ok     ", "green"), "note": ("note   ", "yellow"), "problem": ("PROBLEM", "red")}


@click.command("doctor", short_help="Check a server and suggest fixes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
@bootstrap_option
@click.pass_context
def command(context: click.Context, as_json: bool, bootstrap_server: str) -> None:
    """Check a server from a client's side: that it is reachable and speaks Kafka's protocol, that its advertised
    addresses are reachable, that partitions have leaders and in-sync replicas, that disks are not full, and that
    clocks agree. Nothing is changed.

    The exit code is 0 if there are no problems, 1 otherwise.

    \b
    Examples:
      moldau doctor
      moldau doctor --bootstrap-server kafka.example:9092
      moldau doctor --json --bootstrap-server broker1:9092,broker2:9092
    """
    from .diagnosis import Level, diagnose

    problems = 0
    for finding in diagnose(parse_addresses(bootstrap_server), now_ms=time.time_ns() // 1_000_000):
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
