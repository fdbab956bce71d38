"""`quorum-state`: the durable state of a raft voter, one line of JSON next to the metadata log.

    {"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}

A voter that lost its epoch could vote twice in it. The only voter of a quorum elects itself, in an epoch above all that
it has seen, and stores the epoch before it writes the first record of the epoch. Version 0 of the file is from before
KIP-853 and has no directory ids.
"""

from __future__ import annotations

import json
from typing import Final

from ..protocol.named_tuples import NamedTuple
from ..protocol.uuid import ZERO_UUID, uuid_from_str, uuid_to_str

FILE_NAME: Final = "quorum-state"
NO_NODE: Final = -1


class QuorumStateError(Exception):
    """The file is damaged, or its format is newer than this software."""


class QuorumState(NamedTuple):
    """The latest epoch, its leader, and this voter's vote in it (`NO_NODE` once there is a leader)."""

    leader_id: int = NO_NODE
    leader_epoch: int = 0
    voted_id: int = NO_NODE
    voted_directory_id: bytes = ZERO_UUID

    def encode(self, kraft_version: int) -> bytes:
        """The content of the file, in the version that matches the kraft.version: 0 for 0, 1 for 1."""
        content: dict[str, object] = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": self.voted_id,
        }
        if kraft_version > 0:
            content["votedDirectoryId"] = uuid_to_str(self.voted_directory_id)
        else:
            voters = [{"voterId": self.leader_id}]
            content = {"clusterId": "", **content, "appliedOffset": 0, "currentVoters": voters}
        content["data_version"] = int(kraft_version > 0)
        return json.dumps(content, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """The state in a file's content. Raises QuorumStateError."""
    try:
        content = json.loads(data)
        version = content["data_version"]
        if version not in (0, 1):
            raise QuorumStateError(f"{FILE_NAME} has unknown data_version {version}")
        directory = uuid_from_str(content["votedDirectoryId"]) if version else ZERO_UUID
        state = QuorumState(content["leaderId"], content["leaderEpoch"], content["votedId"], directory)
    except (ValueError, TypeError, KeyError) as error:
        raise QuorumStateError(f"{FILE_NAME} is corrupt: {error}") from None
    if not all(type(number) is int for number in state[:3]):
        raise QuorumStateError(f"{FILE_NAME} is corrupt: {data!r}")
    return state


def is_whole(data: bytes) -> bool:
    """Whether a file was written to its end: a power failure leaves a beginning of it, or zeros in its place."""
    return data.endswith(b"}")
