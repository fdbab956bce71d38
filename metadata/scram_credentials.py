"""AlterUserScramCredentials (KIP-554).

The client sends the salt and the salted password. The records contain only the keys that a server needs to verify a
proof (`security.scram`). Each user succeeds or fails separately:

- A user may occur once in a request; otherwise DUPLICATE_RESOURCE, and nothing is changed for the user.
- Iterations are 4,096 to 16,384, and names and salted passwords are not empty: UNACCEPTABLE_CREDENTIAL. (Apache Kafka
  responds UNKNOWN_SERVER_ERROR to an empty salted password.)
- The deletion of a missing credential is RESOURCE_NOT_FOUND.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode
from ..protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ..protocol.steps import Steps, each
from ..security.scram import MAX_ITERATIONS, MECHANISMS_BY_CODE, MIN_ITERATIONS, credential
from .outcome import NO_ERROR, ApiError, Outcome, Versioned, check_record_count
from .records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from .image import MetadataImage


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Steps[Outcome[AlterUserScramCredentialsResponse]]:
    """Decide on an AlterUserScramCredentialsRequest."""
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    counts: Counter[str] = Counter()
    for change in changes:
        counts[change.name] += 1
        yield 0
    results: dict[str, ApiError] = {}
    records = []
    for change in changes:
        yield 1
        if counts[change.name] > 1:
            message = "A user credential cannot be altered twice in the same request"
            results[change.name] = ApiError(ErrorCode.DUPLICATE_RESOURCE, message)
            continue
        error = _problem(image, change)
        results[change.name] = error
        if error is NO_ERROR:
            records.append(Versioned(_record(change)))
    check_record_count(records)
    made = yield from each(_result, results.items())
    return Outcome(AlterUserScramCredentialsResponse(results=made), records)


def _result(result: tuple[str, ApiError]) -> AlterUserScramCredentialsResult:
    user, error = result
    return AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)


def _problem(image: MetadataImage, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> ApiError:
    if not change.name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in MECHANISMS_BY_CODE:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in image.scram_credentials:
            message = "Attempt to delete a user credential that does not exist"
            return ApiError(ErrorCode.RESOURCE_NOT_FOUND, message)
    elif change.iterations > MAX_ITERATIONS:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    elif change.iterations < MIN_ITERATIONS:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    elif not change.salted_password:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty")
    return NO_ERROR


def _record(
    change: ScramCredentialDeletion | ScramCredentialUpsertion,
) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
    if isinstance(change, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    return credential_record(
        change.name, change.mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
    )


def credential_record(
    name: str, mechanism: int, salted: bytes, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    """The record of a salted password."""
    keys = credential(MECHANISMS_BY_CODE[mechanism], salted, salt, iterations)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=keys.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=keys.iterations,
    )
