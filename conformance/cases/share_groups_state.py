"""The state of share partitions, as brokers store it at the share coordinator (KIP-932)."""

from __future__ import annotations

from functools import partial

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check
from ..share_group import FEATURES
from ..share_state import ACKNOWLEDGED, AVAILABLE, NEEDS, SharePartition, batches_of, fields_of

state_case = partial(
    case,
    source="KIP-932: Share coordinator APIs",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    features=FEATURES,
    needs=NEEDS,
)


def initialize_partition(c: Check, partition: SharePartition | None = None) -> SharePartition:
    """A share partition with state epoch 5 and start offset 10, as a step of the setup."""
    partition = partition or SharePartition(c)
    with c.setup("an initialized share partition"):
        c.error(partition.initialize(5, 10).error_code, ErrorCode.NONE)
    return partition


@state_case(
    "share-groups.state.initialize.exchange",
    "the state of a share partition is initialized",
    versions=versions_of(ApiKey.INITIALIZE_SHARE_GROUP_STATE),
)
def initialize(c: Check, version: int) -> None:
    """Sends: InitializeShareGroupState with state epoch 5 and start offset 10; then ReadShareGroupState.

    Expects: no error; the same epoch and offset, and no batches.

    Why: the group coordinator gives a share partition its first offset like this.
    """
    partition = SharePartition(c)
    c.error(partition.initialize(5, 10).error_code, ErrorCode.NONE, "InitializeShareGroupState error_code")
    found = partition.read()
    c.error(found.error_code, ErrorCode.NONE, "ReadShareGroupState error_code")
    c.equal((found.state_epoch, found.start_offset, batches_of(found)), (5, 10, []), "epoch, offset and batches")


@state_case(
    "share-groups.state.initialize.fenced",
    "an initialization with an older state epoch is rejected",
    versions=versions_of(ApiKey.INITIALIZE_SHARE_GROUP_STATE),
)
def initialize_fenced(c: Check, version: int) -> None:
    """Sends: InitializeShareGroupState with state epoch 5, with epoch 4 and another offset, and with epoch 6.

    Expects: no error, FENCED_STATE_EPOCH, no error; the state is that of epoch 6.

    Why: a delayed request must not undo a later change of the group's offsets.
    """
    partition = SharePartition(c)
    for epoch, offset, code in ((5, 10, 0), (4, 3, ErrorCode.FENCED_STATE_EPOCH), (6, 20, 0)):
        c.error(partition.initialize(epoch, offset).error_code, ErrorCode(code), f"error_code with state epoch {epoch}")
    found = partition.read()
    c.equal((found.state_epoch, found.start_offset), (6, 20), "state_epoch and start_offset")


@state_case(
    "share-groups.state.write.exchange",
    "the state of a share partition is written and read",
    versions=versions_of(ApiKey.WRITE_SHARE_GROUP_STATE),
)
def write(c: Check, version: int) -> None:
    """Sends: WriteShareGroupState twice, with different batches; then ReadShareGroupState.

    Expects: no error; the batches of both in the order of their offsets, the epoch, and the start offset.

    Why: the new leader of a partition continues with this state; a wrong one loses records or delivers them again.
    """
    partition = initialize_partition(c)
    second, first = (13, 14, ACKNOWLEDGED, 1), (11, 12, AVAILABLE, 3)
    for batch in (second, first):
        c.error(partition.write(5, 11, [batch], version=version).error_code, ErrorCode.NONE, "error_code of the write")
    found = partition.read()
    c.error(found.error_code, ErrorCode.NONE, "error_code of the read")
    c.equal((found.state_epoch, found.start_offset), (5, 11), "state_epoch and start_offset")
    c.equal(batches_of(found), [first, second], "state_batches")


@state_case(
    "share-groups.state.write.rejected",
    "a write with another state epoch, or without a state, is rejected",
    versions=versions_of(ApiKey.WRITE_SHARE_GROUP_STATE),
)
def write_rejected(c: Check, version: int) -> None:
    """Sends: WriteShareGroupState before an initialization, and with an older state epoch after it.

    Expects: INVALID_REQUEST and FENCED_STATE_EPOCH; the state is unchanged.

    Why: a leader with an old state must not overwrite a new one.
    """
    partition = SharePartition(c)
    answer = partition.write(5, 11, version=version)
    c.error(answer.error_code, ErrorCode.INVALID_REQUEST, "error_code before the initialization")
    initialize_partition(c, partition)
    answer = partition.write(4, 12, [(12, 12, AVAILABLE, 1)], version=version)
    c.error(answer.error_code, ErrorCode.FENCED_STATE_EPOCH, "error_code with an older state epoch")
    found = partition.read()
    c.equal((found.state_epoch, found.start_offset, batches_of(found)), (5, 10, []), "epoch, offset and batches")


@state_case(
    "share-groups.state.read.exchange",
    "the state of a share partition is read",
    versions=versions_of(ApiKey.READ_SHARE_GROUP_STATE),
)
def read(c: Check, version: int) -> None:
    """Sends: InitializeShareGroupState with state epoch 5 and start offset 10, and ReadShareGroupState twice.

    Expects: no error; the same epoch and offset both times, and no batches.

    Why: a broker that becomes the leader of the partition continues where the last one ended.
    """
    partition = initialize_partition(c)
    for _ in range(2):
        found = partition.read()
        c.error(found.error_code, ErrorCode.NONE)
        c.equal((found.state_epoch, found.start_offset), (5, 10), "state_epoch and start_offset")
        c.equal(batches_of(found), [], "state_batches")


@state_case(
    "share-groups.state.read.rejected",
    "a read without a state, or with an older leader epoch, is rejected",
    versions=versions_of(ApiKey.READ_SHARE_GROUP_STATE),
)
def read_rejected(c: Check, version: int) -> None:
    """Sends: ReadShareGroupState before an initialization, with leader epoch 2, and with leader epoch 1.

    Expects: INVALID_REQUEST, no error, FENCED_LEADER_EPOCH.

    Why: a broker that is no longer the leader must not start to deliver records.
    """
    partition = SharePartition(c)
    c.error(partition.read().error_code, ErrorCode.INVALID_REQUEST, "error_code before the initialization")
    initialize_partition(c, partition)
    c.error(partition.read(2).error_code, ErrorCode.NONE, "error_code with leader epoch 2")
    c.error(partition.read(1).error_code, ErrorCode.FENCED_LEADER_EPOCH, "error_code with leader epoch 1")


@state_case(
    "share-groups.state.summary.exchange",
    "the summary of a share partition has its epochs and its start offset",
    source="KIP-932 and KIP-1226",
    needs=(*NEEDS, *needs(ApiKey.WRITE_SHARE_GROUP_STATE, 1)),
    versions=versions_of(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY),
)
def summary(c: Check, version: int) -> None:
    """Sends: ReadShareGroupStateSummary after a write and a read with leader epoch 2, start offset 11 and two
    completed deliveries.

    Expects: these values and state epoch 5; the number of completed deliveries since version 1.

    Why: the lag of a share group is computed from the summary.
    """
    partition = SharePartition(c)
    with c.setup("a share partition with a state"):
        c.error(partition.initialize(5, 10).error_code, ErrorCode.NONE)
        written = partition.write(
            5, 11, [(12, 13, ACKNOWLEDGED, 1)], leader_epoch=2, version=1, delivery_complete_count=2
        )
        c.error(written.error_code, ErrorCode.NONE)
        c.error(partition.read(2).error_code, ErrorCode.NONE)
    found = partition.summary(version, 2)
    c.error(found.error_code, ErrorCode.NONE)
    expected = {"state_epoch": 5, "leader_epoch": 2, "start_offset": 11}
    if version >= 1:
        expected["delivery_complete_count"] = 2
    c.equal(fields_of(found, list(expected)), expected, "the summary")


@state_case(
    "share-groups.state.summary.uninitialized",
    "the summary of a share partition without a state has no start offset",
    source="KIP-932 and KIP-1226",
    versions=versions_of(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY),
)
def summary_uninitialized(c: Check, version: int) -> None:
    """Sends: ReadShareGroupStateSummary of a share partition that was never initialized.

    Expects: no error, and start offset -1.

    Why: a group coordinator that does not know a partition yet shows no offset for it.
    """
    found = SharePartition(c).summary(version)
    c.error(found.error_code, ErrorCode.NONE)
    c.equal(found.start_offset, -1, "start_offset")


@state_case(
    "share-groups.state.delete.exchange",
    "the state of a share partition is deleted",
    versions=versions_of(ApiKey.DELETE_SHARE_GROUP_STATE),
)
def delete(c: Check, version: int) -> None:
    """Sends: DeleteShareGroupState of an initialized partition; a read and a write; the deletion again; then an
    initialization with a lower state epoch.

    Expects: no error for both deletions; INVALID_REQUEST for the read and the write; no error for the initialization.

    Why: a group of the same name starts again after its deletion.
    """
    partition = initialize_partition(c)
    c.error(partition.delete().error_code, ErrorCode.NONE, "error_code of the deletion")
    c.error(partition.read().error_code, ErrorCode.INVALID_REQUEST, "error_code of a read after the deletion")
    c.error(partition.write(5, 11).error_code, ErrorCode.INVALID_REQUEST, "error_code of a write after the deletion")
    c.error(partition.delete().error_code, ErrorCode.NONE, "error_code of the second deletion")
    c.error(partition.initialize(1, 3).error_code, ErrorCode.NONE, "error_code of the initialization")
    found = partition.read()
    c.equal((found.state_epoch, found.start_offset), (1, 3), "state_epoch and start_offset")
