"""``moldau spark``: Spark jobs on topics and files.

The subcommand modules import only click; Spark is imported when a job starts.
"""

import click

from .spark_archive import archive, compact
from .spark_audit import audit
from .spark_replay import replay
from .suggestions import CommandGroup


@click.group("spark", cls=CommandGroup, short_help="Archive, compact, replay and audit topics with Spark.")
def command() -> None:
    """Run Spark jobs on topics and files. Requires Java 17 and the extra `spark` (`pip install '.[spark]'` in a
    checkout).

    \b
    Examples:
      moldau spark archive events --to /archive/events --once
      moldau spark compact /archive/events
      moldau spark replay /archive/events --to events-again
      moldau spark audit events
    """


for each in (archive, audit, compact, replay):
    command.add_command(each)
