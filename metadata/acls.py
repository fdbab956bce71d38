"""CreateAcls, DeleteAcls and DescribeAcls (KIP-140, KIP-290, KIP-801).

ACLs are AccessControlEntryRecords with random ids. To create an ACL that exists succeeds without a record. A request
for an ACL that is not valid fails for that ACL alone. (For the codes ANY and MATCH in a creation, Apache Kafka responds
UNKNOWN_SERVER_ERROR instead of INVALID_REQUEST.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.acl import AclOperation, AclResource
from ..protocol.errors import ErrorCode
from ..protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ..protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ..protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ..protocol.steps import Steps
from ..security.acls import CLUSTER_NAME, Acl, AclFilter, AclPattern, AclPermission
from .outcome import Outcome, Versioned, check_record_count
from .records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

if TYPE_CHECKING:
    from .context import ControllerContext
    from .image import MetadataImage

_NO_RESOURCES = (AclResource.UNKNOWN, AclResource.ANY)
_NO_OPERATIONS = (AclOperation.UNKNOWN, AclOperation.ANY)


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The ACL of a record."""
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def create_acls_in_steps(
    image: MetadataImage, request: CreateAclsRequest, context: ControllerContext
) -> Steps[Outcome[CreateAclsResponse]]:
    """Decide on a CreateAclsRequest, in steps."""
    existing = set()
    for record in image.access_control_entries.values():
        existing.add(acl_of(record))
        yield 0
    results, records = [], []
    for creation in request.creations:
        yield 1
        problem = _problem(creation)
        if problem is not None:
            results.append(AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=problem))
            continue
        results.append(AclCreationResult())
        acl = Acl(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        if acl not in existing:
            existing.add(acl)
            records.append(
                Versioned(
                    AccessControlEntryRecord(
                        id=context.random_uuid(),
                        resource_type=acl.resource_type,
                        resource_name=acl.name,
                        pattern_type=acl.pattern,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                )
            )
    check_record_count(records)
    return Outcome(CreateAclsResponse(results=results), records)


def _problem(creation: AclCreation) -> str | None:
    """Why an ACL cannot be created; None if it can."""
    if creation.resource_type not in set(AclResource) - set(_NO_RESOURCES):
        return "Invalid resourceType"
    if creation.resource_pattern_type not in (AclPattern.LITERAL, AclPattern.PREFIXED):
        return "Invalid patternType"
    if creation.operation not in set(AclOperation) - set(_NO_OPERATIONS):
        return "Invalid operation"
    if creation.permission_type not in (AclPermission.ALLOW, AclPermission.DENY):
        return "Invalid permissionType"
    if not creation.resource_name:
        return "Resource name should not be empty"
    if creation.resource_type == AclResource.CLUSTER and creation.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if ":" not in creation.principal:
        return f"Could not parse principal from `{creation.principal}` (no colon is present separating the type)"
    return None


def delete_acls_in_steps(image: MetadataImage, request: DeleteAclsRequest) -> Steps[Outcome[DeleteAclsResponse]]:
    """Decide on a DeleteAclsRequest, in steps."""
    results = []
    removed: dict[bytes, None] = {}
    for each in request.filters:
        yield 1
        unknown = _unknown_code(each)
        if unknown is not None:
            error, message = ErrorCode.INVALID_REQUEST, f"Unknown {unknown} in the filter"
            results.append(DeleteAclsFilterResult(error_code=error, error_message=message))
            continue
        chosen = _filter(each)
        matching = []
        for record_id, record in image.access_control_entries.items():
            yield 0
            acl = acl_of(record)
            if chosen.matches(acl):
                removed[record_id] = None
                matching.append(
                    DeleteAclsMatchingAcl(
                        resource_type=acl.resource_type,
                        resource_name=acl.name,
                        pattern_type=acl.pattern,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                )
        results.append(DeleteAclsFilterResult(matching_acls=matching))
    records = []
    for record_id in removed:
        records.append(Versioned(RemoveAccessControlEntryRecord(id=record_id)))
        yield 0
    check_record_count(records)
    return Outcome(DeleteAclsResponse(filter_results=results), records)


def _unknown_code(chosen: DeleteAclsFilter) -> str | None:
    """The field of a filter that has an unknown code; None if all codes are known."""
    for what, code, known in (
        ("resource type", chosen.resource_type_filter, AclResource),
        ("pattern type", chosen.pattern_type_filter, AclPattern),
        ("operation", chosen.operation, AclOperation),
        ("permission", chosen.permission_type, AclPermission),
    ):
        if code not in set(known) - {known(0)}:
            return what
    return None


def describe_acls_in_steps(image: MetadataImage, request: DescribeAclsRequest) -> Steps[DescribeAclsResponse]:
    """The ACLs that match a filter, by resource, in steps."""
    chosen = _filter(request)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for record in image.access_control_entries.values():
        yield 0
        acl = acl_of(record)
        if not chosen.matches(acl):
            continue
        yield 1
        key = (acl.resource_type, acl.name, acl.pattern)
        if key not in resources:
            resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern
            )
        resources[key].acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


def has_unknown_code(filter_: DescribeAclsRequest | DeleteAclsFilter | AclCreation) -> bool:
    """Whether a code is 0, which Apache Kafka's parser refuses: it closes the connection."""
    if isinstance(filter_, AclCreation):
        codes = (filter_.resource_type, filter_.resource_pattern_type, filter_.operation, filter_.permission_type)
    else:
        codes = (
            filter_.resource_type_filter,
            filter_.pattern_type_filter,
            filter_.operation,
            filter_.permission_type,
        )
    return 0 in codes


def _filter(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
