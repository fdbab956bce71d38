"""The records that the log writes for itself, not for a client.

A control batch has the control bit in its attributes, and holds one record or a few. The key of each is two int16, the
key's version and the record's type: ControlRecordTypeSchema with its version before it. The value is one of the
messages below. That of a transaction's marker has its version before it, too; raft's messages have none, and say in
their first field by which version they were written. Consumers skip control batches; ABORT and COMMIT end transactions
(KIP-98), the others are raft's (KIP-595, KIP-630, KIP-853).
"""

from enum import IntEnum

from ..schema import Message, Struct, array, int16, int32, int64, string, struct, uint16, uuid


class ControlRecordType(IntEnum):
    """What a control record is. Readers skip types that they do not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of every control record; `type` is a ControlRecordType."""

    type: int = int16("0+")


class EndTxnMarker(Message, versions="0"):
    """The value of the markers that end a transaction in a partition (KIP-98)."""

    coordinator_epoch: int = int32("0+")


class Voter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The first record of a leader's epoch: who leads, who votes, who granted the vote (KIP-595, KIP-853)."""

    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: list[Voter] = array(Voter, "0+")
    granting_voters: list[Voter] = array(Voter, "0+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a snapshot (KIP-630)."""

    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a snapshot; without it, the snapshot is incomplete (KIP-630)."""

    version: int = int16("0+")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The finalized kraft.version: 1 allows voters to be added and removed (KIP-853)."""

    version: int = int16("0+")
    kraft_version: int = int16("0+")


class Endpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class ResponseVoter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    endpoints: list[Endpoint] = array(Endpoint, "0+")
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters of the quorum with their endpoints (KIP-853)."""

    version: int = int16("0+")
    voters: list[ResponseVoter] = array(ResponseVoter, "0+")
