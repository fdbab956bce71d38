"""ACLs of a server, for tests."""

from __future__ import annotations

from typing import Any

from ..protocol.acl import AclOperation, AclResource
from ..protocol.messages.create_acls import CreateAclsRequest
from ..protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ..security.acl_arguments import creation_of
from ..security.acls import Acl, AclPattern, AclPermission
from .wire import WireClient

_VERSION = 3


def add_acl(
    wire: WireClient,
    operation: AclOperation,
    kind: AclResource,
    name: str,
    *,
    permission: AclPermission = AclPermission.ALLOW,
    principal: str = "User:alice",
    pattern: AclPattern = AclPattern.LITERAL,
    host: str = "*",
) -> None:
    """Create an ACL."""
    acl = Acl(kind, name, pattern, principal, host, operation, permission)
    (result,) = wire.call(CreateAclsRequest(creations=[creation_of(acl)]), _VERSION).results
    assert result.error_code == 0, result


def remove_acls(wire: WireClient) -> None:
    """Remove all ACLs."""
    everything = DeleteAclsFilter(**acl_filter())
    (result,) = wire.call(DeleteAclsRequest(filters=[everything]), _VERSION).filter_results
    assert result.error_code == 0, result


def acl_filter() -> dict[str, Any]:
    """The fields of a filter that selects all ACLs."""
    names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    return names | {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
