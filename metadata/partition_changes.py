"""How one partition changes: elections, the in-sync set, reassignments, as one algebra.

A caller says what it wants (`isr`, `replicas`, ..., who may lead) and gets the one PartitionChangeRecord that brings
the partition there, or None when nothing has to change. The steps, in this order:

1. A reassignment whose new replicas are all in sync is completed: the old ones leave (KIP-455).
2. With eligible leader replicas (KIP-966) a replica that leaves an in-sync set which is getting too small stays
   eligible.
3. A leader is elected: the present one if it may go on, else the first replica that is in sync, else one that is
   eligible, else, where the topic allows it, any that is alive (unclean).
4. The leader epoch is raised, by naming the leader in the record, whenever replicas are taken away, so that none of
   them goes on believing in the old epoch.

Leader and in-sync set never become empty together by a clean change: the last in-sync replica stays in the set when it
goes away (without KIP-966), because nobody else has all the data.
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
"""Up to metadata.version 3.5 a smaller in-sync set raised the leader epoch too (KAFKA-15021)."""


class Election(Enum):
    """Whom a change may elect when the leader cannot stay, or need not."""

    ONLINE = "any in-sync replica; the present leader stays when it may"
    PREFERRED = "the first replica if it is in sync, even when another leads"
    UNCLEAN = "as ONLINE, and without an in-sync replica any that is alive"


def change_partition(
    partition: PartitionRegistration,
    topic_id: bytes,
    partition_id: int,
    *,
    may_lead: Callable[[int], bool],
    metadata_version: int,
    election: Election = Election.ONLINE,
    isr: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
    removing: Sequence[int] | None = None,
    adding: Sequence[int] | None = None,
    leader_recovery_state: int | None = None,
    directories: dict[int, bytes] | None = None,
    default_directory: Callable[[int], bytes] | None = None,
    min_in_sync_replicas: int = 1,
    elr_enabled: bool = False,
) -> Versioned | None:
    """The record that gives the partition the wanted state; None when it is in that state.

    `None` for `isr` and the like means "as it is". `may_lead` tells whether a broker is alive and has its directory.
    `default_directory` names the directory of a replica that is new; without it the broker chooses.
    """
    target_isr = tuple(partition.isr if isr is None else isr)
    target_replicas = tuple(partition.replicas if replicas is None else replicas)
    target_removing = tuple(partition.removing_replicas if removing is None else removing)
    target_adding = tuple(partition.adding_replicas if adding is None else adding)
    recovery = partition.leader_recovery_state if leader_recovery_state is None else leader_recovery_state

    completed = complete_reassignment(target_replicas, target_isr, target_removing, target_adding)
    if completed is not None:
        target_replicas, target_isr = completed
        target_removing = target_adding = ()
    target_elr = _target_elr(partition, target_isr, min_in_sync_replicas) if elr_enabled else partition.elr

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
        # The last leader is remembered while there is none: it may lead again although no set contains it.
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
    """Replicas and in-sync set after the reassignment, None when there is none or its time has not come.

    It has when all that are added are in sync, somebody of those that stay is, and, if there will be fewer replicas
    than before, all of those that stay are: otherwise completing would make the in-sync set smaller than it need be.
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
    partition: PartitionRegistration, target_isr: Sequence[int], min_in_sync_replicas: int
) -> tuple[int, ...]:
    if len(target_isr) >= min_in_sync_replicas:
        return ()
    candidates = dict.fromkeys((*partition.elr, *partition.isr))
    return tuple(replica for replica in candidates if replica not in target_isr)


def _elect(
    partition: PartitionRegistration,
    replicas: Sequence[int],
    isr: Sequence[int],
    elr: Sequence[int],
    election: Election,
    may_lead: Callable[[int], bool],
    elr_enabled: bool,
) -> tuple[int, bool]:
    """The leader, and whether it may lack data that others had."""

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
