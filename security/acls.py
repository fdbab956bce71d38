"""Access control lists and the decisions of Kafka's StandardAuthorizer (KIP-11, KIP-290, KIP-801), without I/O.

A decision about a principal, a host, an operation and a resource:

1. A super user is allowed everything.
2. The entries whose pattern matches the resource are considered: the same literal name, the literal ``*``, or a prefix
   of the name (pattern PREFIXED).
3. Of these, the entries for the principal or ``User:*``, and for the host or ``*``. Hosts are compared as text.
4. An entry is for the operation if it names it or ALL. An entry that allows READ, WRITE, DELETE or ALTER also allows
   DESCRIBE; one that allows ALTER_CONFIGS also allows DESCRIBE_CONFIGS. An entry that denies implies nothing.
5. An entry that denies wins over all that allow. Without any entry for the principal, the resource is denied; but if no
   entry at all matches the resource (step 2), ``allow.everyone.if.no.acl.found`` decides.

`AclIndex` finds the entries without a scan: by resource type, then by literal name or by each existing prefix length.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ..protocol.acl import AclOperation, AclResource

WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""

_IMPLIED: Final = {
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""The operations whose permission includes the key."""
_NOTHING: Final[frozenset[AclOperation]] = frozenset()


class AclPattern(enum.IntEnum):
    """How the name of an entry, or of a filter, matches names; with the codes in messages."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(enum.IntEnum):
    """What an entry does; with the codes in messages."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """An access control entry."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        resource = f"{AclResource(self.resource_type).name}:{AclPattern(self.pattern).name}:{self.name}"
        permission, operation = AclPermission(self.permission).name, AclOperation(self.operation).name
        return f"{permission} {self.principal} {operation} {resource} from {self.host}"


class Rule(enum.Enum):
    """Why a decision was made, if no entry decided."""

    SUPER_USER = "SuperUser"
    DEFAULT_DENY = "DefaultDeny"
    DEFAULT_ALLOW = "DefaultAllow"


class Decision(NamedTuple):
    """Whether an operation is allowed, and the entry or the rule that decided."""

    allowed: bool
    by: Acl | Rule


class Settings(NamedTuple):
    """The settings of the authorizer."""

    super_users: frozenset[str] = frozenset()
    """Principals as ``User:name``."""
    allow_if_no_acl: bool = False


class AclIndex:
    """The entries of the cluster, for decisions; see the module docstring. It does not change."""

    __slots__ = ("_literal", "_prefixed", "_settings")

    def __init__(self, acls: Iterable[Acl], settings: Settings = Settings()) -> None:  # noqa: B008 - immutable
        self._settings = settings
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: dict[int, dict[int, dict[str, list[Acl]]]] = {}  # by type, length of the prefix, prefix
        for acl in acls:
            if acl.pattern == AclPattern.PREFIXED:
                by_length = self._prefixed.setdefault(acl.resource_type, {})
                by_length.setdefault(len(acl.name), {}).setdefault(acl.name, []).append(acl)
            else:
                self._literal.setdefault((acl.resource_type, acl.name), []).append(acl)

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResource, name: str
    ) -> Decision:
        """Whether the principal may perform the operation."""
        if principal in self._settings.super_users:
            return Decision(True, Rule.SUPER_USER)
        implied = _IMPLIED.get(operation, _NOTHING)
        found = False
        allowing: Acl | None = None
        for acl in self._matching(resource_type, name):
            found = True
            if acl.principal not in (principal, WILDCARD_PRINCIPAL) or acl.host not in (host, WILDCARD):
                continue
            is_exact = acl.operation in (operation, AclOperation.ALL)
            if acl.permission == AclPermission.DENY:
                if is_exact:
                    return Decision(False, acl)
            elif allowing is None and acl.permission == AclPermission.ALLOW and (is_exact or acl.operation in implied):
                allowing = acl
        if allowing is not None:
            return Decision(True, allowing)
        if not found and self._settings.allow_if_no_acl:
            return Decision(True, Rule.DEFAULT_ALLOW)
        return Decision(False, Rule.DEFAULT_DENY)

    def decide_by_type(self, principal: str, host: str, operation: AclOperation, resource_type: AclResource) -> bool:
        """Whether there may be a resource of the type on which the principal may perform the operation.

        As in Apache Kafka: a literal ``*`` that allows wins, even if single resources are denied; otherwise one literal
        name or prefix must be allowed that no denied prefix contains. Implied operations do not count.
        """
        if self.decide(principal, host, operation, resource_type, "hardcode").allowed:
            return True
        denied_names: set[str] = set()
        denied_prefixes: set[str] = set()
        allowed = []
        for acl in self._of_type(resource_type):
            if (
                acl.principal not in (principal, WILDCARD_PRINCIPAL)
                or acl.host not in (host, WILDCARD)
                or acl.operation not in (operation, AclOperation.ALL)
            ):
                continue
            if acl.permission == AclPermission.DENY:
                if acl.pattern == AclPattern.LITERAL and acl.name == WILDCARD:
                    return False
                (denied_prefixes if acl.pattern == AclPattern.PREFIXED else denied_names).add(acl.name)
            elif acl.permission == AclPermission.ALLOW:
                allowed.append(acl)
        return any(
            (acl.pattern == AclPattern.LITERAL and acl.name == WILDCARD)
            or not (
                (acl.pattern == AclPattern.LITERAL and acl.name in denied_names)
                or any(acl.name[:length] in denied_prefixes for length in range(len(acl.name) + 1))
            )
            for acl in allowed
        )

    def _matching(self, resource_type: int, name: str) -> Iterator[Acl]:
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        for length, by_prefix in self._prefixed.get(resource_type, {}).items():
            if length <= len(name):
                yield from by_prefix.get(name[:length], ())

    def _of_type(self, resource_type: int) -> Iterator[Acl]:
        for (kind, _), acls in self._literal.items():
            if kind == resource_type:
                yield from acls
        for by_prefix in self._prefixed.get(resource_type, {}).values():
            for acls in by_prefix.values():
                yield from acls


class AclFilter(NamedTuple):
    """Selects entries, as DescribeAcls and DeleteAcls do. None, and the code ANY, match everything."""

    resource_type: int = AclResource.ANY
    name: str | None = None
    pattern: int = AclPattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = AclPermission.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether the filter selects the entry. The operation ALL selects only entries with ALL."""
        return (
            self.resource_type in (AclResource.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern == AclPattern.MATCH:
            if self.name is None:
                return True
            if acl.pattern == AclPattern.PREFIXED:
                return self.name.startswith(acl.name)
            return acl.name in (self.name, WILDCARD)
        return self.pattern in (AclPattern.ANY, acl.pattern) and self.name in (None, acl.name)
