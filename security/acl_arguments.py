"""An ACL in words: ``alice read topic events``, with the options ``--deny``, ``--prefix`` and ``--host HOST``; and the
request that creates it."""

from __future__ import annotations

import shlex
from typing import Final

from ..protocol.acl import AclOperation, AclResource
from ..protocol.messages.create_acls import AclCreation
from .acls import CLUSTER_NAME, WILDCARD, Acl, AclPattern, AclPermission

RESOURCES: Final = {each.name.lower().replace("_", "-"): each for each in AclResource if each > AclResource.ANY}
OPERATIONS: Final = {each.name.lower().replace("_", "-"): each for each in AclOperation if each > AclOperation.ANY}


def principal_of(text: str) -> str:
    """``alice`` is ``User:alice``."""
    return text if ":" in text else f"User:{text}"


def acl_of(
    principal: str,
    operation: str,
    resource: str,
    name: str = CLUSTER_NAME,
    *,
    host: str = WILDCARD,
    deny: bool = False,
    prefix: bool = False,
) -> Acl:
    """The ACL with these words, which are keys of the tables above."""
    return Acl(
        RESOURCES[resource],
        name,
        AclPattern.PREFIXED if prefix else AclPattern.LITERAL,
        principal_of(principal),
        host,
        OPERATIONS[operation],
        AclPermission.DENY if deny else AclPermission.ALLOW,
    )


def parse_acl(text: str) -> Acl:
    """The ACL of a text. Raises ValueError."""
    words = shlex.split(text)
    deny, prefix = "--deny" in words, "--prefix" in words
    host = WILDCARD
    if "--host" in words[:-1]:
        at = words.index("--host")
        host = words[at + 1]
        del words[at : at + 2]
    words = [word for word in words if word not in ("--deny", "--prefix")]
    if not 3 <= len(words) <= 4 or any(word.startswith("--") for word in words):
        raise ValueError(
            f"{text!r} is no ACL; write PRINCIPAL OPERATION RESOURCE [NAME] [--deny] [--prefix] [--host H]"
        )
    for word, known in ((words[1], OPERATIONS), (words[2], RESOURCES)):
        if word not in known:
            raise ValueError(f"{text!r} is no ACL: {word!r} is not one of {', '.join(known)}")
    return acl_of(*words, host=host, deny=deny, prefix=prefix)


def addition_of(principal: str, operation: str, resource: str, name: str) -> str:
    """The command that adds an ACL. The names may come from a client, so they are quoted for the shell."""
    words = (principal, operation, resource, *(() if resource == "cluster" else (name,)))
    separator = ("--",) if any(word.startswith("-") for word in words) else ()
    return shlex.join(("moldau", "acls", "add", *separator, *words))


def creation_of(acl: Acl) -> AclCreation:
    """The ACL as a part of CreateAclsRequest."""
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
