"""DescribeUserScramCredentials (KIP-554).

It is separate from the changes (`scram_credentials`), which need hashes: `hashlib` loads OpenSSL, 4 MB of memory that a
server without users does not need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode
from ..protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from .image import MetadataImage


def describe_user_scram_credentials(
    image: MetadataImage, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of the requested users; null and no users mean all."""
    by_user: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), record in sorted(image.scram_credentials.items()):
        by_user.setdefault(name, []).append(CredentialInfo(mechanism=mechanism, iterations=record.iterations))
    counts = Counter(user.name for user in request.users or ()) or Counter(by_user.keys())
    return DescribeUserScramCredentialsResponse(results=list(_results(by_user, counts)))


def _results(
    by_user: dict[str, list[CredentialInfo]], counts: Counter[str]
) -> Iterator[DescribeUserScramCredentialsResult]:
    for name, count in counts.items():
        if name in by_user and count == 1:
            yield DescribeUserScramCredentialsResult(user=name, credential_infos=by_user[name])
            continue
        if count > 1:
            error, message = ErrorCode.DUPLICATE_RESOURCE, f"The user {name} is in the request more than once."
        else:
            error, message = ErrorCode.RESOURCE_NOT_FOUND, f"The user {name} has no SCRAM credentials."
        yield DescribeUserScramCredentialsResult(user=name, error_code=error, error_message=message)
