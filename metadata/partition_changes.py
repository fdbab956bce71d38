"""Changes of one partition: elections, the in-sync set, reassignments.

A caller states the target state (`isr`, `replicas`, ..., the brokers that may lead). The result is the
PartitionChangeRecord that leads to this state, or None if nothing changes. The steps, in this order:

1. A reassignment whose new replicas are all in sync is completed: the old replicas are removed (KIP-455).
2. With eligible leader replicas (KIP-966), a replica that leaves an in-sync set which falls below its minimum remains
   eligible.
3. A leader is elected: the current one if it may still lead, else the first replica that is in sync, else an eligible
   replica, else, if the topic permits it, any active replica (unclean).
4. The leader epoch is raised, by naming the leader in the record, whenever replicas are removed, so that none of them
   continues with the old epoch.

A clean change never removes both the leader and the in-sync set: without KIP-966, the last in-sync replica stays in the
set when it goes offline, because no other replica has all the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from .features import DIRECTORIES_SINCE, partition_version
from .outcome import Versioned
from .records import PartitionChangeRecord
from .registrations import NO_LEADER, NO_LEADER_CHANGE, RECOVERING, UNASSIGNED_DIRECTORY, PartitionRegistration

_EPOCH_RISES_ON_ISR_SHRINK_BEFORE: Final = 12
"""Up to metadata.version 3.5 a smaller in-sync set also raised the leader epoch (KAFKA-15021)."""


class Election(Enum):
    """Which replicas may be elected if the leader cannot stay, or need not."""

    ONLINE = "any in-sync replica; the current leader stays if possible"
    PREFERRED = "the first replica if it is in sync, even if another replica leads"
    UNCLEAN = "as ONLINE, and without an in-sync replica any that is alive"


def change_partition(
    partition: PartitionRegistration,
    topic_id: bytes,
    partition_id: int,
    *,
    may_lead: Callable[[int], bool],
    metadata_version: int,
    elr_minimum: int | None,
    election: Election = Election.ONLINE,
    isr: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
    removing: Sequence[int] | None = None,
    adding: Sequence[int] | None = None,
    leader_recovery_state: int | None = None,
    directories: dict[int, bytes] | None = None,
    default_directory: Callable[[int], bytes] | None = None,
    unclean_replicas: Sequence[int] = (),
) -> Versioned | None:
    """The record that brings the partition to the target state; None if it is in that state.

    `None` for `isr` and similar parameters means unchanged. `may_lead`: whether a broker is active and its directory
    online. `elr_minimum`: the minimum size of the in-sync set, below which a replica that leaves it remains an eligible
    leader; None if the cluster has no eligible leader replicas, which a change then removes. `default_directory`
    returns the directory of a new replica; without it the broker chooses. The `unclean_replicas` have restarted without
    a clean shutdown: they are not eligible leaders.
    """
    elr_enabled = elr_minimum is not None
    target_isr = tuple(partition.isr if isr is None else isr)
    target_replicas = tuple(partition.replicas if replicas is None else replicas)
    target_removing = tuple(partition.removing_replicas if removing is None else removing)
    target_adding = tuple(partition.adding_replicas if adding is None else adding)
    recovery = partition.leader_recovery_state if leader_recovery_state is None else leader_recovery_state

    completed = complete_reassignment(target_replicas, target_isr, target_removing, target_adding)
    if completed is not None:
        target_replicas, target_isr = completed
        target_removing = target_adding = ()
    target_elr = partition.elr
    if elr_minimum is not None:
        target_elr = _target_elr(partition, target_replicas, target_isr, elr_minimum, unclean_replicas)

    record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
    leader, unclean = _elect(partition, target_replicas, target_isr, target_elr, election, may_lead, elr_enabled)
    if leader != partition.leader:
        record.leader = leader
        if unclean:
            record.isr = [leader]
            recovery = RECOVERING
        elif leader in target_elr:
            target_isr = (leader,)
            target_elr = tuple(replica for replica in target_elr if replica != leader)
    if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(target_replicas):
        record.leader = partition.leader

    if record.isr is not None or not elr_enabled:
        target_elr = ()
    if target_elr != partition.elr:
        record.eligible_leader_replicas = list(target_elr)
    if record.isr is None and target_isr != partition.isr and (target_isr or elr_enabled):
        record.isr = list(target_isr)
    shrinks = record.isr is not None and not set(partition.isr) <= set(record.isr)
    if record.leader == NO_LEADER_CHANGE and shrinks and metadata_version < _EPOCH_RISES_ON_ISR_SHRINK_BEFORE:
        record.leader = partition.leader
    if elr_enabled:
        # While there is no leader, the last one is recorded: it may be elected again although no set contains it.
        if record.leader == NO_LEADER and not partition.last_known_elr:
            record.last_known_elr = [partition.leader]
        elif record.leader >= 0 and partition.last_known_elr:
            record.last_known_elr = []

    if metadata_version >= DIRECTORIES_SINCE and target_replicas:
        assigned = dict(zip(partition.replicas, partition.directories, strict=False)) | (directories or {})
        default = default_directory or (lambda _broker_id: UNASSIGNED_DIRECTORY)
        target_directories = tuple(assigned.get(replica) or default(replica) for replica in target_replicas)
        if target_directories != partition.directories:
            record.directories = list(target_directories)
    if target_replicas and target_replicas != partition.replicas:
        record.replicas = list(target_replicas)
    if target_removing != partition.removing_replicas:
        record.removing_replicas = list(target_removing)
    if target_adding != partition.adding_replicas:
        record.adding_replicas = list(target_adding)
    if recovery != partition.leader_recovery_state:
        record.leader_recovery_state = recovery

    if record == PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id):
        return None
    return Versioned(record, partition_version(metadata_version))


def complete_reassignment(
    replicas: Sequence[int], isr: Sequence[int], removing: Sequence[int], adding: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Replicas and in-sync set after the reassignment; None if there is none or it cannot be completed yet.

    It can be completed when all added replicas and at least one remaining replica are in sync. If the number of
    replicas decreases, all remaining ones must be in sync: otherwise the in-sync set would be smaller than necessary.
    """
    if not removing and not adding:
        return None
    final_replicas = tuple(replica for replica in replicas if replica not in removing)
    final_isr = tuple(replica for replica in isr if replica not in removing)
    if not final_replicas or (removing and not final_isr) or not set(adding) <= set(final_isr):
        return None
    if len(adding) < len(removing) and not set(final_replicas) <= set(final_isr):
        return None
    return final_replicas, final_isr


def _target_elr(
    partition: PartitionRegistration,
    target_replicas: Sequence[int],
    target_isr: Sequence[int],
    minimum: int,
    unclean: Sequence[int],
) -> tuple[int, ...]:
    if len(target_isr) >= min(minimum, len(partition.replicas)):
        return ()
    candidates = {*partition.elr, *partition.isr}.difference(target_isr, unclean)
    # Apache Kafka keeps a replica that a reassignment has removed, and so never elects the last known leader.
    return tuple(sorted(candidates.intersection(target_replicas)))


def _elect(
    partition: PartitionRegistration,
    replicas: Sequence[int],
    isr: Sequence[int],
    elr: Sequence[int],
    election: Election,
    may_lead: Callable[[int], bool],
    elr_enabled: bool,
) -> tuple[int, bool]:
    """The leader, and whether it may lack data that other replicas had."""

    def eligible(candidates: Iterable[int]) -> int | None:
        in_sync = isr or elr
        return next((replica for replica in candidates if replica in in_sync and may_lead(replica)), None)

    first = replicas[:1] if election is Election.PREFERRED else ()
    leader = eligible((*first, partition.leader, *replicas))
    if leader is not None:
        return leader, False
    last_known = partition.last_known_elr
    if elr_enabled and not isr and not elr and len(last_known) == 1 and may_lead(last_known[0]):
        return last_known[0], True
    if election is Election.UNCLEAN:
        unclean = next((replica for replica in replicas if may_lead(replica)), None)
        if unclean is not None:
            return unclean, True
    return NO_LEADER, False
