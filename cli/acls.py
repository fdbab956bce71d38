"""``moldau acls``: list, add, remove, explain access control lists."""

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from ..protocol.acl import AclOperation, AclResource
from ..protocol.messages.create_acls import CreateAclsRequest
from ..protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ..protocol.messages.describe_acls import DescribeAclsRequest
from ..security.acl_arguments import OPERATIONS, RESOURCES, acl_of, addition_of, creation_of, principal_of
from ..security.acls import CLUSTER_NAME, WILDCARD, Acl, AclIndex, AclPattern, AclPermission, Decision
from .client import bootstrap_option
from .cluster import Cluster, check_accepted, cluster
from .failure import Failure
from .output import print_json, print_table
from .suggestions import CommandGroup

_COLUMNS: Final = ("principal", "permission", "operation", "resource", "pattern", "name", "host")
_ANYTHING: Final[dict[str, Any]] = {
    "resource_type_filter": AclResource.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": AclPattern.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermission.ANY,
}

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
_host_option = click.option("--host", metavar="HOST", default="*", show_default=True, help="The address of clients.")
_deny_option = click.option("--deny", is_flag=True, help="An ACL that denies instead of one that allows.")
_prefix_option = click.option("--prefix", is_flag=True, help="NAME is a prefix of names.")


def _acl_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments that name a principal, an operation and a resource."""
    for argument in (
        click.argument("name", default=CLUSTER_NAME),
        click.argument("resource", type=click.Choice(list(RESOURCES))),
        click.argument("operation", type=click.Choice(list(OPERATIONS))),
        click.argument("principal"),
    ):
        function = argument(function)
    return function


@click.group("acls", cls=CommandGroup, short_help="List, add, remove and explain ACLs.")
def command() -> None:
    """List, add, remove and explain access control lists.

    A principal is User:NAME, or NAME for short. User:* is everyone. The resource is topic, group, cluster,
    transactional-id, delegation-token or user; NAME is its name, or * for all. The cluster needs no name.

    \b
    Examples:
      moldau acls add alice read topic events
      moldau acls add alice read group app- --prefix
      moldau acls add alice describe cluster
      moldau acls explain alice write topic events
      moldau acls list
      moldau acls remove alice read topic events
    """


@command.command("list", short_help="List all ACLs.")
@_json_option
@bootstrap_option
def list_acls(as_json: bool, bootstrap_server: str) -> None:
    """List all ACLs, in the order of their resources.

    \b
    Examples:
      moldau acls list --json
    """
    with cluster(bootstrap_server) as servers:
        found = sorted(all_acls(servers))
    rows = [_row(acl) for acl in found]
    if as_json:
        print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
    elif rows:
        print_table(_COLUMNS, rows)
    else:
        print("No ACLs. Add one with `moldau acls add`.", file=sys.stderr)


@command.command("add", short_help="Add an ACL.")
@_acl_arguments
@_host_option
@_deny_option
@_prefix_option
@bootstrap_option
def add(
    principal: str, operation: str, resource: str, name: str, host: str, deny: bool, prefix: bool, bootstrap_server: str
) -> None:
    """Add an ACL: PRINCIPAL may perform OPERATION on RESOURCE NAME. An ACL that exists stays.

    \b
    Examples:
      moldau acls add alice write topic events
      moldau acls add 'User:*' all topic secret --deny
    """
    acl = acl_of(principal, operation, resource, name, host=host, deny=deny, prefix=prefix)
    with cluster(bootstrap_server) as servers:
        add_acl(servers, acl)
    print(f"Added: {acl}")


@command.command("remove", short_help="Remove an ACL.")
@_acl_arguments
@_host_option
@_deny_option
@_prefix_option
@bootstrap_option
def remove(
    principal: str, operation: str, resource: str, name: str, host: str, deny: bool, prefix: bool, bootstrap_server: str
) -> None:
    """Remove an ACL that was added with the same arguments.

    \b
    Examples:
      moldau acls remove alice write topic events
    """
    acl = acl_of(principal, operation, resource, name, host=host, deny=deny, prefix=prefix)
    with cluster(bootstrap_server) as servers:
        remove_acl(servers, acl)
    print(f"Removed: {acl}")


@command.command("explain", short_help="Show which ACL decides.")
@_acl_arguments
@_host_option
@bootstrap_option
def explain(principal: str, operation: str, resource: str, name: str, host: str, bootstrap_server: str) -> None:
    """Show whether PRINCIPAL may perform OPERATION on RESOURCE NAME, and which ACL decides.

    CREATE and DELETE of a topic are also allowed by the same operation on the cluster. Settings of the server
    (super.users, allow.everyone.if.no.acl.found) are not considered, because clients cannot read them. Without --host,
    ACLs for single addresses are not considered; there is a note about them. The exit code is 1 if the operation is
    denied.

    \b
    Examples:
      moldau acls explain alice write topic events
      moldau acls explain alice read group app-1 --host 10.0.0.7
    """
    kind, wanted = RESOURCES[resource], OPERATIONS[operation]
    who = principal_of(principal)
    with cluster(bootstrap_server) as servers:
        acls = list(all_acls(servers))
    decision = decision_of(acls, who, host, wanted, kind, name)
    question = f"{who} {wanted.name} {kind.name}:{name}"
    if isinstance(decision.by, Acl):
        print(f"{'Allowed' if decision.allowed else 'Denied'}: {question}, by: {decision.by}")
    else:
        print(f"Denied: {question}, because no ACL allows it, unless super.users or allow.everyone.if.no.acl.found of "
              f"the server do. Add one: {addition_of(principal, operation, resource, name)}")  # fmt: skip
    if host == WILDCARD:
        others = [acl for acl in acls if acl.host != WILDCARD and _concerns(acl, who, wanted, kind, name)]
        for acl in others:
            print(f"Not considered without --host {acl.host}: {acl}", file=sys.stderr)
    if not decision.allowed:
        raise SystemExit(1)


def all_acls(servers: Cluster) -> Iterable[Acl]:
    """Every ACL of the cluster. Raises Failure."""
    response = servers.ask(DescribeAclsRequest(**_ANYTHING))
    check_accepted("cannot list ACLs", response.error_code, response.error_message)
    return [
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


def decision_of(
    acls: Iterable[Acl], principal: str, host: str, operation: AclOperation, kind: AclResource, name: str
) -> Decision:
    """What the ACLs decide about an operation. Settings of the server are not considered; clients cannot read them."""
    index = AclIndex(acls)
    decision = index.decide(principal, host, operation, kind, name)
    if kind is AclResource.TOPIC and operation in (AclOperation.CREATE, AclOperation.DELETE):
        of_cluster = index.decide(principal, host, operation, AclResource.CLUSTER, CLUSTER_NAME)
        if of_cluster.allowed:  # also if an ACL of the topic denies
            return of_cluster
    return decision


def add_acl(servers: Cluster, acl: Acl) -> None:
    """Add an ACL; one that exists stays. Raises Failure."""
    (result,) = servers.ask(CreateAclsRequest(creations=[creation_of(acl)])).results
    check_accepted("cannot add the ACL", result.error_code, result.error_message)


def remove_acl(servers: Cluster, acl: Acl) -> None:
    """Remove an ACL. Raises Failure, also if it does not exist."""
    chosen = DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.name,
        pattern_type_filter=acl.pattern,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    (result,) = servers.ask(DeleteAclsRequest(filters=[chosen])).filter_results
    check_accepted("cannot remove the ACL", result.error_code, result.error_message)
    if not result.matching_acls:
        raise Failure(f"there is no such ACL: {acl}; `moldau acls list` lists all")


def _row(acl: Acl) -> tuple[str, ...]:
    return (
        acl.principal,
        AclPermission(acl.permission).name,
        AclOperation(acl.operation).name,
        AclResource(acl.resource_type).name,
        AclPattern(acl.pattern).name,
        acl.name,
        acl.host,
    )


def _concerns(acl: Acl, principal: str, operation: AclOperation, kind: AclResource, name: str) -> bool:
    """Whether an ACL would decide for clients with its host."""
    decided = AclIndex([acl]).decide(principal, acl.host, operation, kind, name)
    return isinstance(decided.by, Acl)
