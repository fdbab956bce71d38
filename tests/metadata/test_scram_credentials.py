"""AlterUserScramCredentials and DescribeUserScramCredentials."""

from __future__ import annotations

from moldau.metadata.image import MetadataImage
from moldau.metadata.scram_credentials import alter_user_scram_credentials
from moldau.metadata.scram_descriptions import describe_user_scram_credentials
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from moldau.protocol.steps import completed
from moldau.security.scram import SHA_256, SHA_512, credential, salted_password

SALTED = salted_password(SHA_256, "secret", b"salt", 4096)


def upsertion(name: str = "alice", mechanism: int = 1, iterations: int = 4096, salted: bytes = SALTED) -> object:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def alter(image: MetadataImage, *changes: object) -> tuple[MetadataImage, dict[str, int]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    outcome = completed(alter_user_scram_credentials(image, request))
    after = image.replayed(versioned.record for versioned in outcome.records)
    return after, {result.user: result.error_code for result in outcome.response.results}


def test_a_credential_has_the_keys_of_the_password() -> None:
    image, errors = alter(MetadataImage(), upsertion(), upsertion("bob", 2))
    assert errors == {"alice": 0, "bob": 0}
    keys = credential(SHA_256, SALTED, b"salt", 4096)
    record = image.scram_credentials["alice", 1]
    assert (record.salt, record.stored_key, record.server_key, record.iterations) == keys
    assert image.scram_credentials["bob", 2].stored_key == credential(SHA_512, SALTED, b"salt", 4096).stored_key


def test_a_credential_is_replaced_and_deleted() -> None:
    image, _ = alter(MetadataImage(), upsertion())
    image, errors = alter(image, upsertion(iterations=5000))
    assert errors == {"alice": 0}
    assert image.scram_credentials["alice", 1].iterations == 5000
    image, errors = alter(image, ScramCredentialDeletion(name="alice", mechanism=1))
    assert errors == {"alice": 0}
    assert image.scram_credentials == {}


def test_invalid_changes_fail_separately() -> None:
    image, errors = alter(
        MetadataImage(),
        upsertion(""),
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16_385),
        upsertion("most", iterations=16_384),
        upsertion("unknown", mechanism=3),
        upsertion("none", mechanism=0),
        upsertion("empty", salted=b""),
        ScramCredentialDeletion(name="missing", mechanism=1),
        ScramCredentialDeletion(name="strange", mechanism=9),
    )
    assert errors == {
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "most": ErrorCode.NONE,
        "unknown": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "none": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "empty": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "missing": ErrorCode.RESOURCE_NOT_FOUND,
        "strange": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }
    assert set(image.scram_credentials) == {("most", 1)}


def test_a_user_may_occur_once() -> None:
    before, _ = alter(MetadataImage(), upsertion())
    for changes in (
        [upsertion(), upsertion()],
        [upsertion(), upsertion(mechanism=2)],
        [ScramCredentialDeletion(name="alice", mechanism=1), upsertion(mechanism=2)],
    ):
        after, errors = alter(before, *changes, upsertion("bob"))
        assert errors == {"alice": ErrorCode.DUPLICATE_RESOURCE, "bob": ErrorCode.NONE}
        assert after.scram_credentials["alice", 1] == before.scram_credentials["alice", 1]
        assert set(after.scram_credentials) == {("alice", 1), ("bob", 1)}


def test_credentials_are_described_without_secrets() -> None:
    image, _ = alter(MetadataImage(), upsertion(iterations=5000))
    image, _ = alter(image, upsertion(mechanism=2), upsertion("bob"))
    every = [("alice", 0, [(1, 5000), (2, 4096)]), ("bob", 0, [(1, 4096)])]

    def describe(users: list[str] | None) -> list[tuple[str, int, list[tuple[int, int]]]]:
        names = None if users is None else [UserName(name=name) for name in users]
        response = describe_user_scram_credentials(image, DescribeUserScramCredentialsRequest(users=names))
        return [
            (each.user, each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos])
            for each in response.results
        ]

    assert describe(None) == every
    assert describe([]) == every
    assert describe(["bob"]) == every[1:]
    assert describe(["bob", "bob"]) == [("bob", ErrorCode.DUPLICATE_RESOURCE, [])]
    assert describe(["carol", ""]) == [
        ("carol", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("", ErrorCode.RESOURCE_NOT_FOUND, []),
    ]
