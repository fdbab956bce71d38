"""A second principal: a SCRAM user of the case, and the ACLs that allow or deny something.

It needs a server that has an authorizer, whose ACLs the suite's own user may change, and a listener with SCRAM.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ..protocol.acl import AclOperation, AclResource
from ..protocol.api import ApiKey
from ..protocol.errors import ErrorCode
from ..protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ..protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ..protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ..protocol.messages.describe_acls import DescribeAclsRequest
from ..protocol.messages.sasl_handshake import SaslHandshakeRequest
from .check import Check
from .exchange import Connection
from .sasl import AuthenticationError, Credentials, authenticator

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
"""Pattern types (KIP-290)."""
DENY, ALLOW = 2, 3
"""Permission types; ANY is 1."""
CLUSTER_NAME: Final = "kafka-cluster"

_SCRAM: Final = "SCRAM-SHA-256"
_SCRAM_NUMBER: Final = 1
_ITERATIONS: Final = 4_096


class Acl(NamedTuple):
    """One ACL. The fields are those of messages."""

    resource: AclResource
    name: str
    operation: AclOperation
    principal: str
    permission: int = ALLOW
    pattern: int = LITERAL
    host: str = "*"

    def creation(self) -> AclCreation:
        return AclCreation(
            resource_type=self.resource,
            resource_name=self.name,
            resource_pattern_type=self.pattern,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )

    def exact_filter(self) -> DeleteAclsFilter:
        return DeleteAclsFilter(
            resource_type_filter=self.resource,
            resource_name_filter=self.name,
            pattern_type_filter=self.pattern,
            principal_filter=self.principal,
            host_filter=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )


def has_authorizer(c: Check) -> None:
    """Without an authorizer, or the right to see its ACLs, the case does not apply."""
    response = c.call(describe_request(AclResource.CLUSTER, CLUSTER_NAME))
    if response.error_code == ErrorCode.SECURITY_DISABLED:
        c.not_applicable("the server has no authorizer")
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        c.not_applicable("the user of the suite may not see ACLs")
    with c.setup("DescribeAcls"):
        c.error(response.error_code, ErrorCode.NONE, "DescribeAcls error_code")


def describe_request(
    resource: AclResource, name: str | None, *, pattern: int = LITERAL, principal: str | None = None
) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=resource,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=1,
    )


def described(c: Check, request: DescribeAclsRequest, version: int | None = None) -> set[Acl]:
    """DescribeAcls, and its ACLs; each is in the response once."""
    response = c.call(request, version)
    c.error(response.error_code, ErrorCode.NONE, "DescribeAcls error_code")
    c.equal(response.error_message or "", "", "DescribeAcls error_message")
    found = [
        Acl(
            AclResource(each.resource_type),
            each.resource_name,
            AclOperation(acl.operation),
            acl.principal,
            acl.permission_type,
            each.pattern_type,
            acl.host,
        )
        for each in response.resources
        for acl in each.acls
    ]
    c.equal(len(set(found)), len(found), "DescribeAcls (number of different ACLs)")
    return set(found)


def delete_at_end(c: Check, *acls: Acl) -> None:
    c.at_end(DeleteAclsRequest(filters=[acl.exact_filter() for acl in acls]))


def create(c: Check, *acls: Acl, version: int | None = None) -> Any:
    """CreateAcls; they are deleted at the end of the case."""
    delete_at_end(c, *acls)
    return c.call(CreateAclsRequest(creations=[acl.creation() for acl in acls]), version)


def allow(c: Check, *acls: Acl) -> None:
    """Create ACLs, as a step of the setup."""
    with c.setup("CreateAcls"):
        codes = [each.error_code for each in create(c, *acls).results]
        c.equal(codes, [int(ErrorCode.NONE)] * len(acls), "CreateAcls error codes")


class Principal(NamedTuple):
    """A user of the case, with a separate connection."""

    name: str
    """As in ACLs: `User:...`."""
    wire: Connection


def another(c: Check) -> Principal:
    """A new user without ACLs, authenticated with SCRAM. It is deleted at the end of the case."""
    has_authorizer(c)
    if c.target.security.authenticate is None:
        c.not_applicable("a second user needs SASL")
    if c.target.highest_version(ApiKey.ALTER_USER_SCRAM_CREDENTIALS) is None:
        c.not_applicable("the server has no users with SCRAM")
    probe = c.connect(authenticated=False)
    mechanisms = probe.call(SaslHandshakeRequest(mechanism=_SCRAM), 1).mechanisms
    if _SCRAM not in mechanisms:
        c.not_applicable(f"the listener does not have {_SCRAM}")
    credentials = Credentials(_SCRAM, c.name("user"), secrets.token_urlsafe(12))
    salt = secrets.token_bytes(16)
    with c.setup(f"creating the user {credentials.username}"):
        c.at_end(
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=credentials.username, mechanism=_SCRAM_NUMBER)]
            )
        )
        added = ScramCredentialUpsertion(
            name=credentials.username,
            mechanism=_SCRAM_NUMBER,
            iterations=_ITERATIONS,
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac("sha256", credentials.password.encode(), salt, _ITERATIONS),
        )
        with c.wire.unrecorded():
            results = c.call(AlterUserScramCredentialsRequest(upsertions=[added])).results
        c.equal([each.error_code for each in results], [0], "AlterUserScramCredentials error codes")
        # The user is known a moment after the response.
        wire = c.until(lambda: _authenticated(c, authenticator(credentials)), "the authentication of a new user")
    return Principal(f"User:{credentials.username}", wire)


def _authenticated(c: Check, authenticate: Callable[[Connection], None]) -> Connection | None:
    wire = c.connect(authenticated=False)
    try:
        authenticate(wire)
    except AuthenticationError:
        wire.close()
        return None
    return wire
