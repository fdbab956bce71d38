"""The screen of ACLs: list, add and remove them, and which one decides about a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..cli.acls import add_acl, all_acls, decision_of, remove_acl
from ..cli.cluster import Cluster
from ..cli.failure import Failure
from ..protocol.acl import AclOperation, AclResource
from ..security.acl_arguments import OPERATIONS, RESOURCES, acl_of, principal_of
from ..security.acls import CLUSTER_NAME, Acl, AclPattern, AclPermission
from .access import Needed, changed, chosen, shown
from .rendering import brokers_of

_MAX_SHOWN: Final = 1000
_NEEDED: Final = Needed("describe", "alter")
_FIELDS: Final = {
    "principal": "",
    "permission": "allow",
    "operation": "read",
    "resource": "topic",
    "pattern": "literal",
    "name": "",
    "host": "*",
}
_PERMISSIONS: Final = ("allow", "deny")
_PATTERNS: Final = ("literal", "prefixed")
# What the server says if authorizer.class.name is not set.
_DISABLED: Final = "SECURITY_DISABLED"


def _get(request: Request) -> Response:
    return _page(request, {}, None)


def _page(request: Request, fields: Mapping[str, str], problem: str | None) -> Response:
    acls: list[Acl] = []
    unavailable: str | None = None
    try:
        with brokers_of(request).cluster() as cluster:
            acls = sorted(all_acls(cluster))
    except Failure as failure:
        unavailable = failure.message
    query = request.query_params.get("q", "").strip()
    matching = [acl for acl in acls if query.lower() in str(acl).lower()]
    question = {name: request.query_params.get(f"ask_{name}", _FIELDS.get(name, "")) for name in _FIELDS}
    return shown(
        request,
        "acls.html",
        problem,
        needed=_NEEDED,
        title="ACLs",
        rows=[_row(acl) for acl in matching[:_MAX_SHOWN]],
        total=len(matching),
        query=query,
        unavailable=unavailable,
        is_disabled=unavailable is not None and _DISABLED in unavailable,
        fields={**_FIELDS, **fields} if problem else _FIELDS,
        question=question,
        answer=_answer(acls, question) if question["principal"] and unavailable is None else None,
        operations=list(OPERATIONS),
        resources=list(RESOURCES),
    )


def _row(acl: Acl) -> dict[str, Any]:
    """An ACL as its fields are in the form."""
    return {
        "principal": acl.principal,
        "permission": "allow" if acl.permission == AclPermission.ALLOW else "deny",
        "operation": _word(AclOperation(acl.operation).name),
        "resource": _word(AclResource(acl.resource_type).name),
        "pattern": "prefixed" if acl.pattern == AclPattern.PREFIXED else "literal",
        "name": acl.name,
        "host": acl.host,
        "text": str(acl),
    }


def _word(name: str) -> str:
    return name.lower().replace("_", "-")


def _answer(acls: list[Acl], question: Mapping[str, str]) -> dict[str, Any]:
    """Whether a request is allowed, and why; settings of the server are unknown here."""
    try:
        resource = RESOURCES[chosen(question, "resource", RESOURCES)]
        operation = OPERATIONS[chosen(question, "operation", OPERATIONS)]
    except Failure as failure:
        return {"allowed": False, "text": failure.message}
    name = question["name"] or (CLUSTER_NAME if question["resource"] == "cluster" else "")
    principal = principal_of(question["principal"])
    decision = decision_of(acls, principal, question["host"], operation, resource, name)
    if isinstance(decision.by, Acl):
        return {"allowed": decision.allowed, "text": f"{'Allowed' if decision.allowed else 'Denied'} by: {decision.by}"}
    return {"allowed": False, "text": "Denied, because no ACL allows it."}


async def _post(request: Request) -> Response:
    return await changed(request, _change, _page)


def _change(cluster: Cluster, fields: Mapping[str, str]) -> str:
    action = chosen(fields, "action", ("add", "remove"))
    acl = _acl({**_FIELDS, **fields})
    if action == "add":
        add_acl(cluster, acl)
        return "added"
    remove_acl(cluster, acl)
    return "removed"


def _acl(fields: Mapping[str, str]) -> Acl:
    """The ACL of a form. Raises Failure."""
    resource = chosen(fields, "resource", RESOURCES)
    name = fields["name"] or (CLUSTER_NAME if resource == "cluster" else "")
    if not fields["principal"].strip():
        raise Failure("the principal is missing; write User:NAME, or User:* for everyone")
    if not name:
        raise Failure(f"the name of the {resource} is missing; * stands for all of them")
    return acl_of(
        fields["principal"].strip(),
        chosen(fields, "operation", OPERATIONS),
        resource,
        name,
        host=fields["host"].strip() or "*",
        deny=chosen(fields, "permission", _PERMISSIONS) == "deny",
        prefix=chosen(fields, "pattern", _PATTERNS) == "prefixed",
    )


ROUTES: Final = [
    Route("/acls", _get, methods=["GET"]),
    Route("/acls", _post, methods=["POST"]),
]
