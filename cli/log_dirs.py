"""``moldau log dirs``: the log directories of a running cluster."""

from typing import TYPE_CHECKING, Any

import click

from .client import bootstrap_option
from .cluster import cluster
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..protocol.messages.describe_log_dirs import DescribeLogDirsResult


@click.command("dirs", short_help="Show the log directories of running brokers: sizes and free space.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@bootstrap_option
def dirs(as_json: bool, bootstrap_server: str) -> None:
    """Show the log directories of all brokers: replicas, replicas that are moving there, and free space.

    \b
    Examples:
      moldau log dirs
      moldau log dirs --json
    """
    from ..protocol.messages.describe_log_dirs import DescribeLogDirsRequest

    rows: list[dict[str, Any]] = []
    with cluster(bootstrap_server) as servers:
        for node_id in servers.broker_ids():
            results = servers.ask_broker(node_id, DescribeLogDirsRequest(topics=None)).results
            rows += [{"broker": node_id} | _facts(result) for result in sorted(results, key=lambda one: one.log_dir)]
    if as_json:
        print_json(rows)
    else:
        columns = tuple(rows[0]) if rows else ("broker", "directory")
        names = tuple(column.replace("_", " ") for column in columns)
        print_table(names, [[row[column] for column in columns] for row in rows])


def _facts(result: "DescribeLogDirsResult") -> dict[str, Any]:
    from .broker_directories import state_of

    replicas = [partition for topic in result.topics for partition in topic.partitions]
    return {
        "directory": result.log_dir,
        "state": state_of(result),
        "partitions": sum(not partition.is_future_key for partition in replicas),
        "moving_here": sum(partition.is_future_key for partition in replicas),
        "bytes": sum(partition.partition_size for partition in replicas),
        "free_bytes": result.usable_bytes,
        "disk_bytes": result.total_bytes,
    }
