"""``moldau quotas``: list, set and remove client quotas."""

import sys
from collections.abc import Mapping
from typing import Final

import click

from ..protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ..protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ..security.quotas import CLIENT_ID, IP, KEYS_OF_ADDRESSES, KEYS_OF_CLIENTS, USER, Entity
from .client import bootstrap_option
from .cluster import Cluster, check_accepted, cluster
from .output import print_json, print_table
from .suggestions import CommandGroup

_DEFAULT: Final = "*"

_user_option = click.option("--user", metavar="NAME", help="The user, without User:. * means all others.")
_client_option = click.option("--client-id", metavar="ID", help="The client id. * means all others.")
_ip_option = click.option("--ip", metavar="ADDRESS", help="The address of clients. * means all others.")
_key_argument = click.argument("key", type=click.Choice((*KEYS_OF_CLIENTS, *KEYS_OF_ADDRESSES)))


@click.group("quotas", cls=CommandGroup, short_help="List, set and remove client quotas.")
def command() -> None:
    """List, set and remove client quotas: the bytes per second of producers and consumers, the percentage of the
    broker's time, the partitions per second that are created and deleted, and the new connections per second.

    A quota belongs to a user, a client id, or both. The most specific one applies. A client that exceeds its quota is
    delayed, not refused. connection_creation_rate belongs to an address, and closes connections above it.

    \b
    Examples:
      moldau quotas list
      moldau quotas set producer_byte_rate 1000000 --user alice
      moldau quotas set consumer_byte_rate 500000 --user '*' --client-id reports
      moldau quotas set request_percentage 20 --client-id '*'
      moldau quotas set connection_creation_rate 10 --ip '*'
      moldau quotas remove producer_byte_rate --user alice
    """


@command.command("list", short_help="List all quotas.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@bootstrap_option
def list_quotas(as_json: bool, bootstrap_server: str) -> None:
    """List the quotas of all users, client ids and addresses.

    \b
    Examples:
      moldau quotas list --json
    """
    with cluster(bootstrap_server) as servers:
        rows = sorted(
            (" ".join(f"{kind}={_name(name)}" for kind, name in entity), key, value)
            for entity, key, value in all_quotas(servers)
        )
    if as_json:
        print_json([dict(zip(("entity", "key", "value"), row, strict=True)) for row in rows])
    elif rows:
        print_table(("entity", "key", "value"), [(entity, key, f"{value:.15g}") for entity, key, value in rows])
    else:
        print("No quotas. Set one with `moldau quotas set`.", file=sys.stderr)


@command.command("set", short_help="Set a quota.")
@_key_argument
@click.argument("value", type=click.FloatRange(0, min_open=True))
@_user_option
@_client_option
@_ip_option
@bootstrap_option
def set_quota(
    key: str, value: float, user: str | None, client_id: str | None, ip: str | None, bootstrap_server: str
) -> None:
    """Set a quota of a user, a client id, a client id of a user, or an address: in bytes, partitions or connections per
    second, or in percent.

    \b
    Examples:
      moldau quotas set producer_byte_rate 1000000 --user alice
    """
    entity = {USER: user, CLIENT_ID: client_id, IP: ip}
    _alter(entity, key, value, bootstrap_server)
    print(f"Set {key} of {_title(entity)} to {value:.15g}.")


@command.command("remove", short_help="Remove a quota.")
@_key_argument
@_user_option
@_client_option
@_ip_option
@bootstrap_option
def remove_quota(key: str, user: str | None, client_id: str | None, ip: str | None, bootstrap_server: str) -> None:
    """Remove a quota. It succeeds if there is none.

    \b
    Examples:
      moldau quotas remove producer_byte_rate --user alice
    """
    entity = {USER: user, CLIENT_ID: client_id, IP: ip}
    _alter(entity, key, None, bootstrap_server)
    print(f"Removed {key} of {_title(entity)}.")


def all_quotas(servers: Cluster) -> list[tuple[Entity, str, float]]:
    """The entity, the key and the value of each quota. Raises Failure."""
    response = servers.ask(DescribeClientQuotasRequest(components=[]))
    check_accepted("cannot list quotas", response.error_code, response.error_message)
    return [
        (tuple((part.entity_type, part.entity_name) for part in entry.entity), value.key, value.value)
        for entry in response.entries or ()
        for value in entry.values
    ]


def alter_quota(servers: Cluster, entity: Entity, key: str, value: float | None) -> None:
    """Set a quota of an entity, or remove it (``value`` None). Raises Failure."""
    operation = OpData(key=key, remove=True) if value is None else OpData(key=key, value=value, remove=False)
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    request = AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=[operation])])
    (result,) = servers.ask(request).entries
    failed = "cannot remove the quota" if value is None else "cannot set the quota"
    check_accepted(failed, result.error_code, result.error_message)


def _alter(entity: Mapping[str, str | None], key: str, value: float | None, bootstrap_server: str) -> None:
    parts = tuple((kind, None if name == _DEFAULT else name) for kind, name in entity.items() if name is not None)
    if not parts:
        raise click.UsageError("give --user, --client-id, or both; or --ip for connection_creation_rate")
    with cluster(bootstrap_server) as servers:
        alter_quota(servers, parts, key, value)


def _title(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"{kind} {name}" for kind, name in entity.items() if name is not None)


def _name(name: str | None) -> str:
    return _DEFAULT if name is None else name
