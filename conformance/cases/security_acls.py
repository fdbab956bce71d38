"""ACLs on a server with an authorizer: creating, describing and deleting them (KIP-140, KIP-290)."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...protocol.acl import AclOperation, AclResource
from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_acls import CreateAclsRequest
from ...protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from .. import frames
from .. import principals as a
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..principals import Acl

ACLS = needs(ApiKey.DESCRIBE_ACLS, 1, ApiKey.CREATE_ACLS, 1, ApiKey.DELETE_ACLS, 1)
NONE = int(ErrorCode.NONE)
acl_case = partial(case, source="KIP-140 and KIP-290", layer=Layer.WIRE, needs=ACLS)


def some_acls(c: Check) -> list[Acl]:
    """Three ACLs of one principal: a literal name, a prefix, and a denial for one host."""
    principal = f"User:{c.name('user')}"
    return [
        Acl(AclResource.TOPIC, c.name("topic"), AclOperation.READ, principal),
        Acl(AclResource.GROUP, c.name("group"), AclOperation.ALL, principal, pattern=a.PREFIXED),
        Acl(AclResource.TOPIC, c.name("topic"), AclOperation.WRITE, principal, permission=a.DENY, host="127.0.0.9"),
    ]


def all_of(principal: str) -> Any:
    return a.describe_request(AclResource.ANY, None, pattern=a.ANY, principal=principal)


def allowed(c: Check, *acls: Acl, version: int | None = None) -> None:
    """These ACLs are those of their principal, as a step of the setup."""
    a.allow(c, *acls)
    c.until(lambda: a.described(c, all_of(acls[0].principal), version) == set(acls), "the ACLs in DescribeAcls")


@acl_case(
    "security.acls.create.exchange",
    "ACLs are created",
    versions=versions_of(ApiKey.CREATE_ACLS),
)
def create_exchange(c: Check, version: int) -> None:
    """Sends: CreateAcls with three ACLs of one principal, and again with the first of them; then DescribeAcls.

    Expects: no errors; the three ACLs, each once.

    Why: an administrator, or a program that applies the same list again, relies on what it has created.
    """
    a.has_authorizer(c)
    acls = some_acls(c)
    for created in (acls, acls[:1]):
        results = a.create(c, *created, version=version).results
        c.equal(
            [(each.error_code, each.error_message or "") for each in results], [(NONE, "")] * len(created), "results"
        )
    c.until(lambda: a.described(c, all_of(acls[0].principal)) == set(acls), "the three ACLs in DescribeAcls")


@acl_case(
    "security.acls.create.invalid",
    "ACLs that are not valid are rejected, and the others of the request are created",
    versions=versions_of(ApiKey.CREATE_ACLS),
    variants={
        "no-type": ({"principal": "conformance"},),
        "other-cluster": ({"resource": AclResource.CLUSTER, "name": "no-such-cluster"},),
    },
)
def create_invalid(c: Check, version: int, change: dict[str, Any]) -> None:
    """Sends: CreateAcls with one ACL that is not valid (a principal without type, or a cluster that does not have the
    name kafka-cluster), and a valid one.

    Expects: INVALID_REQUEST with a message for the first; no error for the second, which DescribeAcls has.

    Why: an ACL that means nothing would make an administrator believe that something is protected.
    """
    a.has_authorizer(c)
    good, _, bad = some_acls(c)
    results = a.create(c, bad._replace(**change), good, version=version).results
    c.equal(len(results), 2, "results (number)")
    c.error(results[0].error_code, ErrorCode.INVALID_REQUEST, "results[0].error_code")
    c.true(results[0].error_message, "results[0].error_message", expected="a reason", actual=results[0].error_message)
    c.error(results[1].error_code, ErrorCode.NONE, "results[1].error_code")
    c.until(lambda: a.described(c, all_of(good.principal)) == {good}, "the valid ACL in DescribeAcls")


@acl_case(
    "security.acls.describe.exchange",
    "a filter selects ACLs by resource, name, pattern and principal",
    versions=versions_of(ApiKey.DESCRIBE_ACLS),
)
def describe_exchange(c: Check, version: int) -> None:
    """Sends: CreateAcls with three ACLs of one principal; DescribeAcls with several filters.

    Expects: exactly those that match: all of the principal, those of topics, that of a name, the prefix only if the
    pattern type is PREFIXED, ANY or MATCH, and none of another principal.

    Why: tools show who may do what; a missing ACL hides a permission.
    """
    a.has_authorizer(c)
    acls = some_acls(c)
    topic, group, denial = acls
    allowed(c, *acls, version=version)

    longer, other = f"{group.name}-more", f"{topic.principal}-2"
    for resource, name, pattern, principal, expected, what in (
        (AclResource.TOPIC, None, a.ANY, topic.principal, {topic, denial}, "the ACLs of topics"),
        (AclResource.TOPIC, topic.name, a.LITERAL, topic.principal, {topic}, "the ACLs of one topic"),
        (AclResource.GROUP, group.name, a.LITERAL, topic.principal, set(), "the literal ACLs of the prefix"),
        (AclResource.GROUP, group.name, a.PREFIXED, topic.principal, {group}, "the prefixed ACLs of the prefix"),
        (AclResource.GROUP, None, a.PREFIXED, topic.principal, {group}, "the prefixed ACLs of groups"),
        (AclResource.GROUP, longer, a.MATCH, topic.principal, {group}, "what matches a group below the prefix"),
        (AclResource.GROUP, longer, a.PREFIXED, topic.principal, set(), "the prefixed ACLs of a longer name"),
        (AclResource.ANY, None, a.ANY, other, set(), "the ACLs of another principal"),
    ):
        request = a.describe_request(resource, name, pattern=pattern, principal=principal)
        c.equal(a.described(c, request, version), expected, what)


@acl_case(
    "security.acls.describe.invalid",
    "a filter with an unknown element is rejected",
    versions=versions_of(ApiKey.DESCRIBE_ACLS),
    variants={
        "resource": ("resource_type_filter",),
        "pattern": ("pattern_type_filter",),
        "operation": ("operation",),
        "permission": ("permission_type",),
    },
)
def describe_invalid(c: Check, version: int, field: str) -> None:
    """Sends: DescribeAcls in which one field is 0, the code of what the client does not know.

    Expects: INVALID_REQUEST and no ACLs, or, as in Apache Kafka, a closed connection; others are served.

    Why: a filter that the server cannot apply must not select everything.
    """
    a.has_authorizer(c)
    request = all_of(f"User:{c.name('user')}")
    setattr(request, field, 0)
    with frames.others_served(c) as wire:
        try:
            response = wire.call(request, version)
        except ConnectionError:
            return
        c.error(response.error_code, ErrorCode.INVALID_REQUEST)
        c.equal(response.resources, [], "resources")


@acl_case(
    "security.acls.delete.exchange",
    "the ACLs that match a filter are deleted and returned",
    versions=versions_of(ApiKey.DELETE_ACLS),
)
def delete_exchange(c: Check, version: int) -> None:
    """Sends: CreateAcls with three ACLs; DeleteAcls with a filter for one of them, one that matches nothing, and one
    for those of topics; DescribeAcls.

    Expects: for each filter no error and what it has deleted; the other ACL remains.

    Why: an administrator sees from the response which permissions are gone.
    """
    a.has_authorizer(c)
    acls = some_acls(c)
    topic, group, denial = acls
    allowed(c, *acls)
    nothing = topic._replace(principal=f"{topic.principal}-2").exact_filter()
    filters = [topic.exact_filter(), nothing, denial.exact_filter()]
    results = c.call(DeleteAclsRequest(filters=filters), version).filter_results
    c.equal([each.error_code for each in results], [NONE] * 3, "filter_results (error_code)")
    matching = [
        [
            (each.error_code, each.resource_type, each.resource_name, each.operation, each.permission_type, each.host)
            for each in result.matching_acls
        ]
        for result in results
    ]
    expected = [
        [(NONE, acl.resource, acl.name, acl.operation, acl.permission, acl.host)] if acl else []
        for acl in (topic, None, denial)
    ]
    c.equal(matching, expected, "filter_results (error, resource, name, operation, permission and host)")
    c.until(lambda: a.described(c, all_of(topic.principal)) == {group}, "the remaining ACL in DescribeAcls")


@acl_case(
    "security.acls.delete.invalid",
    "a filter with an unknown element deletes nothing",
    versions=versions_of(ApiKey.DELETE_ACLS),
)
def delete_invalid(c: Check, version: int) -> None:
    """Sends: CreateAcls with one ACL, and DeleteAcls of its principal, in which the operation is 0, the code of what
    the client does not know.

    Expects: INVALID_REQUEST, or, as in Apache Kafka, a closed connection; the ACL remains.

    Why: a filter that the server cannot apply must not delete everything.
    """
    a.has_authorizer(c)
    acl = some_acls(c)[0]
    allowed(c, acl)
    unwanted: DeleteAclsFilter = acl.exact_filter()
    unwanted.operation = 0
    try:
        (result,) = c.connect().call(DeleteAclsRequest(filters=[unwanted]), version).filter_results
    except ConnectionError:
        pass
    else:
        c.error(result.error_code, ErrorCode.INVALID_REQUEST)
        c.equal(result.matching_acls, [], "matching_acls")
    c.equal(a.described(c, all_of(acl.principal)), {acl}, "the ACLs of the principal")


@case(
    "security.acls.user-resource",
    "ACLs of users exist since version 3",
    source="KIP-373",
    layer=Layer.WIRE,
    level=Level.APACHE,
    needs=needs(ApiKey.DESCRIBE_ACLS, 3, ApiKey.CREATE_ACLS, 3, ApiKey.DELETE_ACLS, 3),
)
def user_resource(c: Check) -> None:
    """Sends: CreateAcls version 3 that allows a principal to create tokens for a user; DescribeAcls version 3.

    Expects: no error, and the ACL.

    Why: a service that obtains delegation tokens for its users needs this permission.
    """
    a.has_authorizer(c)
    acl = Acl(AclResource.USER, f"User:{c.name('owner')}", AclOperation.CREATE_TOKENS, f"User:{c.name('user')}")
    results = a.create(c, acl, version=3).results
    c.equal([each.error_code for each in results], [NONE], "results (error_code)")
    c.until(lambda: a.described(c, all_of(acl.principal), 3) == {acl}, "the ACL in DescribeAcls")


# Without permission


@acl_case(
    "security.acls.describe.denied",
    "a user without permission sees no ACLs",
    versions=versions_of(ApiKey.DESCRIBE_ACLS),
)
def describe_denied(c: Check, version: int) -> None:
    """Sends: DescribeAcls of all ACLs, by a new user without ACLs.

    Expects: CLUSTER_AUTHORIZATION_FAILED, and no ACLs.

    Why: ACLs show the names of users and topics.
    """
    user = a.another(c)
    response = user.wire.call(a.describe_request(AclResource.ANY, None, pattern=a.ANY), version)
    c.error(response.error_code, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    c.equal(response.resources, [], "resources")


@acl_case(
    "security.acls.create.denied",
    "a user without permission creates no ACLs",
    versions=versions_of(ApiKey.CREATE_ACLS),
)
def create_denied(c: Check, version: int) -> None:
    """Sends: CreateAcls with two ACLs that allow a new user something, by this user.

    Expects: CLUSTER_AUTHORIZATION_FAILED for each, and no ACLs of this user.

    Why: otherwise every user has all permissions.
    """
    user = a.another(c)
    operations = (AclOperation.READ, AclOperation.ALL)
    acls = [Acl(AclResource.TOPIC, c.name("topic"), operation, user.name) for operation in operations]
    a.delete_at_end(c, *acls)
    request = CreateAclsRequest(creations=[acl.creation() for acl in acls])
    results = user.wire.call(request, version).results
    denied = [int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * 2
    c.equal([each.error_code for each in results], denied, "results (error_code)")
    c.equal(a.described(c, all_of(user.name)), set(), "the ACLs of the user")


@acl_case(
    "security.acls.delete.denied",
    "a user without permission deletes no ACLs",
    versions=versions_of(ApiKey.DELETE_ACLS),
)
def delete_denied(c: Check, version: int) -> None:
    """Sends: CreateAcls that denies a new user something, and DeleteAcls of it by this user.

    Expects: CLUSTER_AUTHORIZATION_FAILED, and nothing deleted; the ACL remains.

    Why: otherwise a denial means nothing.
    """
    user = a.another(c)
    denial = Acl(AclResource.TOPIC, c.name("topic"), AclOperation.READ, user.name, permission=a.DENY)
    allowed(c, denial)
    (result,) = user.wire.call(DeleteAclsRequest(filters=[denial.exact_filter()]), version).filter_results
    c.error(result.error_code, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    c.equal(result.matching_acls, [], "matching_acls")
    c.equal(a.described(c, all_of(user.name)), {denial}, "the ACLs of the user")
