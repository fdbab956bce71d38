"""ACLs, delegation tokens and SCRAM credentials, on a server without authorizer and without authentication."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ...protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ...protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ...protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ...protocol.messages.describe_acls import DescribeAclsRequest
from ...protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ...protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ...protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ...protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..outcome import NotApplicableError

# Codes of ACLs
ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3

_WITH_AUTHORIZER = frozenset({ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


def describe_acls(c: Check, version: int | None = None) -> Any:
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC,
        resource_name_filter=c.name("topic"),
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    response = c.call(request, version)
    if response.error_code in _WITH_AUTHORIZER:
        raise NotApplicableError("the server has an authorizer")
    return response


@case(
    "security.acls.describe",
    "without an authorizer there are no ACLs to describe",
    source="KIP-140",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_ACLS),
)
def acls_describe(c: Check, version: int) -> None:
    """Sends: DescribeAcls of a topic.

    Expects: SECURITY_DISABLED with a message, and no resources.

    Why: user interfaces send this request when they start, and hide ACLs after this error.
    """
    response = describe_acls(c, version)
    c.error(response.error_code, ErrorCode.SECURITY_DISABLED)
    c.true(response.error_message, "error_message", expected="a message", actual=response.error_message)
    c.equal(response.resources, [], "resources")


@case(
    "security.acls.create",
    "without an authorizer no ACL is created",
    source="KIP-140",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_ACLS),
    needs=needs(ApiKey.DESCRIBE_ACLS, 1),
)
def acls_create(c: Check, version: int) -> None:
    """Sends: CreateAcls with two ACLs.

    Expects: two results with SECURITY_DISABLED and a message.

    Why: an administrator must not believe that a topic is protected if it is not.
    """
    describe_acls(c)
    creation = AclCreation(
        resource_type=TOPIC,
        resource_name=c.name("topic"),
        resource_pattern_type=LITERAL,
        principal="User:conformance",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    results = c.call(CreateAclsRequest(creations=[creation, creation]), version).results
    c.equal([each.error_code for each in results], [int(ErrorCode.SECURITY_DISABLED)] * 2, "error codes of the results")
    for each in results:
        c.true(each.error_message, "error_message", expected="a message", actual=each.error_message)


@case(
    "security.acls.delete",
    "without an authorizer no ACL is deleted",
    source="KIP-140",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DELETE_ACLS),
    needs=needs(ApiKey.DESCRIBE_ACLS, 1),
)
def acls_delete(c: Check, version: int) -> None:
    """Sends: DeleteAcls with two filters.

    Expects: two results with SECURITY_DISABLED, a message, and no ACLs.

    Why: the response must not look as if there had been no such ACLs.
    """
    describe_acls(c)
    unwanted = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter=c.name("topic"),
        pattern_type_filter=LITERAL,
        principal_filter="User:conformance",
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    results = c.call(DeleteAclsRequest(filters=[unwanted, unwanted]), version).filter_results
    c.equal([each.error_code for each in results], [int(ErrorCode.SECURITY_DISABLED)] * 2, "error codes of the results")
    for each in results:
        c.true(each.error_message, "error_message", expected="a message", actual=each.error_message)
        c.equal(each.matching_acls, [], "matching_acls")


def without_authentication(c: Check) -> None:
    if c.target.security.tls is not None or c.target.security.authenticate is not None:
        raise NotApplicableError("the connection is authenticated")


@case(
    "security.tokens.create",
    "a connection without authentication gets no delegation token",
    source="KIP-48 and KIP-373",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_DELEGATION_TOKEN),
)
def tokens_create(c: Check, version: int) -> None:
    """Sends: CreateDelegationToken on a plaintext connection.

    Expects: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, no token ID, an empty HMAC, and the times -1; the principal is
    User:ANONYMOUS, since version 3 also as the requester.

    Why: a token is an authentication; a client without one must not get it.
    """
    without_authentication(c)
    response = c.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
    c.error(response.error_code, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    c.equal((response.token_id, bytes(response.hmac)), ("", b""), "token_id and hmac")
    times = (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms)
    c.equal(times, (-1, -1, -1), "issue_timestamp_ms, expiry_timestamp_ms, max_timestamp_ms")
    c.equal((response.principal_type, response.principal_name), ("User", "ANONYMOUS"), "principal")
    if version >= 3:
        requester = (response.token_requester_principal_type, response.token_requester_principal_name)
        c.equal(requester, ("User", "ANONYMOUS"), "token requester")


@case(
    "security.tokens.describe",
    "a connection without authentication sees no delegation tokens",
    source="KIP-48 and KIP-373",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_DELEGATION_TOKEN),
    variants={
        "all": (None,),
        "none": ([],),
        "owner": ([DescribeDelegationTokenOwner(principal_type="User", principal_name="conformance")],),
    },
)
def tokens_describe(c: Check, version: int, owners: list[DescribeDelegationTokenOwner] | None) -> None:
    """Sends: DescribeDelegationToken of all owners, of none and of one, on a plaintext connection.

    Expects: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, and no tokens.

    Why: the response has the secrets of the tokens.
    """
    without_authentication(c)
    response = c.call(DescribeDelegationTokenRequest(owners=owners), version)
    c.error(response.error_code, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    c.equal(response.tokens, [], "tokens")


@case(
    "security.tokens.renew",
    "a connection without authentication renews no delegation token",
    source="KIP-48",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.RENEW_DELEGATION_TOKEN),
)
def tokens_renew(c: Check, version: int) -> None:
    """Sends: RenewDelegationToken on a plaintext connection.

    Expects: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, and the time -1.

    Why: whether there is a token with this HMAC must not be visible.
    """
    without_authentication(c)
    response = c.call(RenewDelegationTokenRequest(hmac=b"conformance", renew_period_ms=1_000), version)
    c.error(response.error_code, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    c.equal(response.expiry_timestamp_ms, -1, "expiry_timestamp_ms")


@case(
    "security.tokens.expire",
    "a connection without authentication expires no delegation token",
    source="KIP-48",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.EXPIRE_DELEGATION_TOKEN),
)
def tokens_expire(c: Check, version: int) -> None:
    """Sends: ExpireDelegationToken on a plaintext connection.

    Expects: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, and the time -1.

    Why: whether there is a token with this HMAC must not be visible.
    """
    without_authentication(c)
    response = c.call(ExpireDelegationTokenRequest(hmac=b"conformance", expiry_time_period_ms=-1), version)
    c.error(response.error_code, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    c.equal(response.expiry_timestamp_ms, -1, "expiry_timestamp_ms")


# SCRAM

SHA_256, SHA_512 = 1, 2
Credential = tuple[str, int, int]
"""User, mechanism, iterations."""


def alter(c: Check, upserted: list[Credential], deleted: list[tuple[str, int]] | None = None) -> dict[str, int]:
    """AlterUserScramCredentials, and the error code of each user. A result with an error has a message."""
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deleted or []],
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=iterations, salt=b"s" * 16, salted_password=b"p" * 32
            )
            for name, mechanism, iterations in upserted
        ],
    )
    results = c.call(request, 0).results
    found = {each.user: each.error_code for each in results}
    c.equal(len(found), len(results), "results (number of different users)")
    for each in results:
        c.equal(bool(each.error_message), bool(each.error_code), f"whether there is an error_message of {each.user}")
    return found


def describe(c: Check, users: list[str] | None) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    """DescribeUserScramCredentials: error code, and mechanisms with iterations, of each user."""
    named = None if users is None else [UserName(name=name) for name in users]
    response = c.call(DescribeUserScramCredentialsRequest(users=named), 0)
    c.error(response.error_code, ErrorCode.NONE)
    c.true(not response.error_message, "error_message", expected="none", actual=response.error_message)
    found = {
        each.user: (each.error_code, sorted((one.mechanism, one.iterations) for one in each.credential_infos))
        for each in response.results
    }
    c.equal(len(found), len(response.results), "results (number of different users)")
    return found


@contextlib.contextmanager
def deleted_afterwards(c: Check, *credentials: tuple[str, int]) -> Iterator[None]:
    """At the end, delete these credentials, some of which may not exist."""
    try:
        yield
    finally:
        unwanted = [ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in credentials]
        for each in unwanted:
            c.call(AlterUserScramCredentialsRequest(deletions=[each]), 0)


SCRAM = needs(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0)
ALTER = versions_of(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
RESOURCE_NOT_FOUND = int(ErrorCode.RESOURCE_NOT_FOUND)


@case(
    "security.scram.describe.unknown",
    "users without credentials are rejected",
    source="KIP-554",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS),
)
def scram_unknown(c: Check, version: int) -> None:
    """Sends: DescribeUserScramCredentials of two users that have no credentials, and of the user with an empty name.

    Expects: no error of the response; RESOURCE_NOT_FOUND for each user, and no credentials.

    Why: tools distinguish a user that does not exist from one that exists.
    """
    names = [c.name("user"), c.name("user"), ""]
    found = describe(c, names)
    c.equal(found, dict.fromkeys(names, (RESOURCE_NOT_FOUND, [])), "results (error_code, credential_infos)")


@case(
    "security.scram.describe.duplicate",
    "a user that is named twice is rejected",
    source="KIP-554",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS),
    level=Level.APACHE,
)
def scram_duplicate(c: Check, version: int) -> None:
    """Sends: DescribeUserScramCredentials with one user twice.

    Expects: one result with DUPLICATE_RESOURCE.

    Why: a client that stores the results by user expects one for each.
    """
    name = c.name("user")
    found = describe(c, [name, name])
    c.equal(found, {name: (int(ErrorCode.DUPLICATE_RESOURCE), [])}, "results (error_code, credential_infos)")


@case(
    "security.scram.describe.all",
    "no names stand for all users with credentials",
    source="KIP-554",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS),
    variants={"null": (None,), "empty": ([],)},
)
def scram_all(c: Check, version: int, names: list[str] | None) -> None:
    """Sends: DescribeUserScramCredentials with null, or an empty list, of users.

    Expects: no error of the response; each user in it has credentials and no error.

    Why: tools list the users of a cluster.
    """
    found = describe(c, names)
    c.equal({name: each for name, each in found.items() if each[0] or not each[1]}, {}, "users without credentials")


@case(
    "security.scram.exchange",
    "credentials are created, described, changed and deleted",
    source="KIP-554",
    layer=Layer.WIRE,
    versions=ALTER,
    needs=SCRAM,
)
def scram_exchange(c: Check, version: int) -> None:
    """Sends: AlterUserScramCredentials with two mechanisms of one user and one of another; then a change of one, and
    deletions; DescribeUserScramCredentials after each.

    Expects: no errors; the mechanisms with their numbers of iterations; after the last deletion RESOURCE_NOT_FOUND.

    Why: operators create users and change their passwords while the cluster runs.
    """
    first, second = c.name("user"), c.name("user")
    names = [first, second]

    def until(expected: dict[str, tuple[int, list[tuple[int, int]]]]) -> None:
        c.until(lambda: describe(c, names) == expected, f"credentials {expected}")

    with deleted_afterwards(c, (first, SHA_256), (first, SHA_512), (second, SHA_256)):
        found = alter(c, [(first, SHA_256, 4_096), (second, SHA_256, 5_000)])
        c.equal(found, {first: 0, second: 0}, "results (user and error_code)")
        until({first: (0, [(SHA_256, 4_096)]), second: (0, [(SHA_256, 5_000)])})
        found = alter(c, [(first, SHA_512, 8_192), (second, SHA_256, 16_384)])
        c.equal(found, {first: 0, second: 0}, "results (user and error_code)")
        until({first: (0, [(SHA_256, 4_096), (SHA_512, 8_192)]), second: (0, [(SHA_256, 16_384)])})
        all_users = describe(c, None)
        c.equal({name: all_users.get(name) for name in names}, describe(c, names), "the users in the list of all")
        found = alter(c, [], [(first, SHA_256), (second, SHA_256)])
        c.equal(found, {first: 0, second: 0}, "results (user and error_code)")
        until({first: (0, [(SHA_512, 8_192)]), second: (RESOURCE_NOT_FOUND, [])})


@case(
    "security.scram.invalid",
    "credentials that are impossible are rejected",
    source="KIP-554",
    layer=Layer.WIRE,
    versions=ALTER,
    needs=SCRAM,
    variants={
        "few-iterations": (SHA_256, 4_095, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        "many-iterations": (SHA_512, 16_385, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        "no-iterations": (SHA_256, 0, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        "mechanism-0": (0, 4_096, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        "mechanism-9": (9, 4_096, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    },
)
def scram_invalid(c: Check, version: int, mechanism: int, iterations: int, expected: ErrorCode) -> None:
    """Sends: AlterUserScramCredentials with too few or too many iterations, or a mechanism that does not exist, for a
    user; and a valid credential of another user.

    Expects: UNACCEPTABLE_CREDENTIAL or UNSUPPORTED_SASL_MECHANISM for the first, who has no credentials; the other has.

    Why: few iterations make a stolen credential easy to break; many of them burden the server at each login.
    """
    bad, good = c.name("bad"), c.name("good")
    with deleted_afterwards(c, (good, SHA_256)):
        found = alter(c, [(bad, mechanism, iterations), (good, SHA_256, 4_096)])
        c.equal(found, {bad: int(expected), good: 0}, "results (user and error_code)")
        c.until(lambda: describe(c, [good])[good] == (0, [(SHA_256, 4_096)]), "the credential of the other user")
        c.equal(describe(c, [bad]), {bad: (RESOURCE_NOT_FOUND, [])}, "results (error_code, credential_infos)")


@case(
    "security.scram.no-user",
    "a user needs a name",
    source="KIP-554",
    layer=Layer.WIRE,
    versions=ALTER,
    needs=SCRAM,
)
def scram_no_user(c: Check, version: int) -> None:
    """Sends: AlterUserScramCredentials of the user with an empty name: a credential, then a deletion.

    Expects: UNACCEPTABLE_CREDENTIAL for both.

    Why: a client could not log in as this user, and a tool could not show it.
    """
    rejected = {"": int(ErrorCode.UNACCEPTABLE_CREDENTIAL)}
    c.equal(alter(c, [("", SHA_256, 4_096)]), rejected, "results of the credential (user and error_code)")
    c.equal(alter(c, [], [("", SHA_256)]), rejected, "results of the deletion (user and error_code)")


@case(
    "security.scram.delete-unknown",
    "a credential that does not exist cannot be deleted",
    source="KIP-554",
    layer=Layer.WIRE,
    versions=ALTER,
    needs=SCRAM,
    variants={
        "unknown": (SHA_256, ErrorCode.RESOURCE_NOT_FOUND),
        "mechanism-0": (0, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    },
)
def scram_delete_unknown(c: Check, version: int, mechanism: int, expected: ErrorCode) -> None:
    """Sends: AlterUserScramCredentials that deletes a credential of a user who has none, or of an unknown mechanism.

    Expects: RESOURCE_NOT_FOUND, or UNSUPPORTED_SASL_MECHANISM.

    Why: with a misspelled name, an operator would believe that a user no longer has access.
    """
    name = c.name("user")
    c.equal(alter(c, [], [(name, mechanism)]), {name: int(expected)}, "results (user and error_code)")


@case(
    "security.scram.duplicate",
    "a user whose credential is altered twice is rejected",
    source="KIP-554",
    layer=Layer.WIRE,
    versions=ALTER,
    needs=SCRAM,
    level=Level.APACHE,
    variants={"upserted": (False,), "deleted": (True,)},
)
def scram_alter_duplicate(c: Check, version: int, is_deleted: bool) -> None:
    """Sends: AlterUserScramCredentials with a credential; then with the same mechanism of this user twice: two
    credentials, or one and a deletion.

    Expects: one result with DUPLICATE_RESOURCE; the user has the first credential.

    Why: the server cannot know which of the two passwords is meant.
    """
    name = c.name("user")
    with deleted_afterwards(c, (name, SHA_256)):
        c.equal(alter(c, [(name, SHA_256, 5_000)]), {name: 0}, "results of the first credential (user and error_code)")
        c.until(lambda: describe(c, [name])[name] == (0, [(SHA_256, 5_000)]), "the first credential")
        changed = (name, SHA_256, 4_096)
        found = alter(c, [changed], [(name, SHA_256)]) if is_deleted else alter(c, [changed, changed])
        c.equal(found, {name: int(ErrorCode.DUPLICATE_RESOURCE)}, "results (user and error_code)")
        c.equal(describe(c, [name]), {name: (0, [(SHA_256, 5_000)])}, "results (error_code, credential_infos)")
