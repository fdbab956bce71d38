"""``moldau format``: prepare the log directories of a broker or a controller for its cluster."""

import os
import secrets
from pathlib import Path

import click

from ..config.definition import ConfigError
from ..config.sources import load
from ..log.files import RealFileSystem
from ..security.scram_arguments import ArgumentError, parse_scram_user
from ..server.storage.formatting import format_directories
from ..server.storage.opening import StorageError
from .failure import Failure


@click.command("format", short_help="Format the log directories of a broker or a controller.")
@click.option("--cluster-id", metavar="ID", required=True, help="The id of the cluster.")
@click.option("--config", metavar="FILE", required=True, help="The settings of the node: node.id and log.dirs.")
@click.option(
    "--add-scram", metavar="USER", multiple=True,
    help="Create a user with the cluster: SCRAM-SHA-512=[name=NAME,password=PASSWORD]. Only for controllers.",
)  # fmt: skip
def command(cluster_id: str, config: str, add_scram: tuple[str, ...]) -> None:
    """Format log directories for a broker that joins a cluster, or for the controller of a new one.

    Writes meta.properties into each directory of log.dirs, as kafka-storage.sh format does. Directories with data, or
    of another node or cluster, are refused and not changed. `moldau serve` without other nodes formats its own
    directory.

    \b
    Examples:
      moldau format --cluster-id 4L6g3nShT-eMCtK--X86sw --config server.properties
      moldau format ... --add-scram 'SCRAM-SHA-512=[name=admin,password=secret]'
    """
    try:
        settings = load(file=Path(config).expanduser(), environment=os.environ, overrides=(), command_line={})
    except ConfigError as error:
        raise Failure(str(error)) from None
    if not settings.log_dirs:
        raise Failure(f"{config} does not set log.dirs, so there is no directory to format.")
    if "node.id" not in settings.static:
        raise Failure(f"{config} does not set node.id, which each node of a cluster needs.")
    try:
        users = [parse_scram_user(text, secrets.token_bytes) for text in add_scram]
    except ArgumentError as error:
        raise Failure(f"--add-scram: {error}.") from None
    paths = [str(Path(path).absolute()) for path in settings.log_dirs]
    try:
        formatted = format_directories(settings, paths, cluster_id, RealFileSystem(), users=users)
    except StorageError as error:
        raise Failure(str(error)) from None
    for path in formatted:
        click.echo(f"Formatted {path} for node {settings.node_id} of cluster {cluster_id}.")
    if not formatted:
        click.echo("All directories are formatted already.")
