"""AddRaftVoter and RemoveRaftVoter: changes of the controllers that are rejected (KIP-853).

A change that succeeds needs a further controller, which has to be running: the suite does not have one.
"""

from __future__ import annotations

from typing import Any

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ...protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ...protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from .. import topic_admin as t
from ..case import Layer, case, needs, versions_of
from ..check import Check

QUORUM = needs(ApiKey.DESCRIBE_QUORUM, 2)
FEATURES = {"kraft.version": 1}
DIRECTORY = bytes(range(16))
"""The ID of a directory that no controller has."""


def voters(c: Check) -> list[Any]:
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    found = c.call(request).topics[0].partitions[0].current_voters
    return sorted((each.replica_id, each.replica_directory_id) for each in found)


def add_request(c: Check, voter_id: int, **changes: Any) -> AddRaftVoterRequest:
    fields: dict[str, Any] = {
        "cluster_id": c.target.cluster_id,
        "timeout_ms": 1_000,
        "voter_id": voter_id,
        "voter_directory_id": DIRECTORY,
        "listeners": [Listener(name="CONTROLLER", host="127.0.0.1", port=1)],
    }
    return AddRaftVoterRequest(**(fields | changes))


@case(
    "cluster.voters.add-existing",
    "a controller that is a voter cannot be added again",
    source="KIP-853",
    layer=Layer.WIRE,
    needs=QUORUM,
    features=FEATURES,
    versions=versions_of(ApiKey.ADD_RAFT_VOTER),
)
def add_existing(c: Check, version: int) -> None:
    """Sends: AddRaftVoter with the node ID of a voter and another directory.

    Expects: DUPLICATE_VOTER with a message; the voters are unchanged.

    Why: two voters with one ID would both vote.
    """
    before = voters(c)
    answer = c.call(add_request(c, before[0][0]), version)
    c.error(answer.error_code, ErrorCode.DUPLICATE_VOTER)
    c.true(answer.error_message, "error_message", expected="a reason", actual=answer.error_message)
    c.equal(voters(c), before, "current_voters")


@case(
    "cluster.voters.add-other-cluster",
    "a controller of another cluster cannot be added",
    source="KIP-853",
    layer=Layer.WIRE,
    needs=QUORUM,
    features=FEATURES,
    versions=versions_of(ApiKey.ADD_RAFT_VOTER),
)
def add_other_cluster(c: Check, version: int) -> None:
    """Sends: AddRaftVoter with the ID of another cluster.

    Expects: INCONSISTENT_CLUSTER_ID; the voters are unchanged.

    Why: a tool with a wrong configuration must not change the wrong cluster.
    """
    before = voters(c)
    answer = c.call(add_request(c, t.NO_BROKER, cluster_id="another-cluster"), version)
    c.error(answer.error_code, ErrorCode.INCONSISTENT_CLUSTER_ID)
    c.equal(voters(c), before, "current_voters")


@case(
    "cluster.voters.remove-unknown",
    "a controller that is no voter cannot be removed",
    source="KIP-853",
    layer=Layer.WIRE,
    needs=QUORUM,
    features=FEATURES,
    versions=versions_of(ApiKey.REMOVE_RAFT_VOTER),
    variants={"node": (t.NO_BROKER,), "directory": (None,)},
)
def remove_unknown(c: Check, version: int, voter_id: int | None) -> None:
    """Sends: RemoveRaftVoter with a node ID that no voter has, or that of a voter with another directory.

    Expects: VOTER_NOT_FOUND with a message; the voters are unchanged.

    Why: with a misspelled ID, a quorum would lose another voter than the broken one.
    """
    before = voters(c)
    request = RemoveRaftVoterRequest(
        cluster_id=c.target.cluster_id,
        voter_id=before[0][0] if voter_id is None else voter_id,
        voter_directory_id=DIRECTORY,
    )
    answer = c.call(request, version)
    c.error(answer.error_code, ErrorCode.VOTER_NOT_FOUND)
    c.true(answer.error_message, "error_message", expected="a reason", actual=answer.error_message)
    c.equal(voters(c), before, "current_voters")
