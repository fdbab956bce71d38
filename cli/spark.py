"""``moldau spark``: jobs that Spark runs between topics and files.

The modules of the sub commands know click only; Spark and what belongs to it are imported when a job is started.
"""

import click

from .spark_archive import archive, compact
from .spark_audit import audit
from .spark_replay import replay
from .suggestions import CommandGroup


@click.group("spark", cls=CommandGroup, short_help="Archive topics with Spark, put archives back, balance the books.")
def command() -> None:
    """Jobs of Spark on topics and files. They need `pip install 'moldau[spark]'` and Java 17.

    \b
    Examples:
      moldau spark archive events --to /archive/events --once
      moldau spark compact /archive/events
      moldau spark replay /archive/events --to events-again
      moldau spark audit events
    """


for each in (archive, audit, compact, replay):
    command.add_command(each)
