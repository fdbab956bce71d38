"""Histories of three replicas: kills, lost messages, late metadata. Nothing that was acknowledged is lost.

The model must also find faults: some are planted.
"""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import PartitionData as ProposedData
from moldau.protocol.messages.alter_partition import ResponsePartitionData
from moldau.protocol.messages.fetch import PartitionData
from moldau.replication.following import Following
from moldau.testing.full_run import in_extended_run, in_full_run

from .replicas_model import Cluster, Node, Request, run


@pytest.mark.parametrize("seed", [*range(25), *in_full_run(*range(25, 500)), *in_extended_run(*range(500, 1000))])
def test_no_acknowledged_record_is_lost(seed: int) -> None:
    run(seed)


class FailsOften(Cluster):
    failures = 4


@pytest.mark.parametrize("seed", [*range(20), *in_full_run(*range(20, 250)), *in_extended_run(*range(250, 500))])
def test_no_acknowledged_record_is_lost_if_brokers_fail_often(seed: int) -> None:
    run(seed, cluster=FailsOften)


class LosesPower(FailsOften):
    loses_power = True


class KeepsEligibleLeaders(FailsOften):
    elr_enabled = True


@pytest.mark.parametrize("cluster", [LosesPower, KeepsEligibleLeaders])
@pytest.mark.parametrize("seed", [*range(10), *in_full_run(*range(10, 250)), *in_extended_run(*range(250, 500))])
def test_no_acknowledged_record_is_lost_with_power_losses_or_eligible_leaders(
    seed: int, cluster: type[Cluster]
) -> None:
    run(seed, cluster=cluster)


class CountsAFollowerBeforeItHasTheRecords(FailsOften):
    """The leader takes the end of what it sends as the position of the follower."""

    def respond(self, leader: Node, follower: Node, request: Request) -> PartitionData:
        response = super().respond(leader, follower, request)
        partition = leader.partition
        in_sync = partition.in_sync
        if not response.error_code and len(response.records or b"") and in_sync is not None:
            known = in_sync.follower(follower.id)
            assert known is not None
            known.end_offset = partition.log.log_end_offset
            partition.advance_high_watermark()
        return response


class TakesTheHighWatermarkOfADivergingResponse(FailsOften):
    """A follower takes over a high watermark before it has truncated its log (KAFKA-14704)."""

    def handle(self, node: Node, following: Following, request: Request) -> None:
        response = request.response
        uncommitted = node.partition.uncommitted
        if response is not None and response.diverging_epoch.end_offset >= 0 and uncommitted is not None:
            reached = min(response.high_watermark, node.partition.log.log_end_offset)
            uncommitted.move(max(uncommitted.high_watermark, reached))
        super().handle(node, following, request)


class ForgetsAProposalAfterAnUnknownError(FailsOften):
    """The leader counts the committed in-sync set, although the controller may have changed it (KIP-497)."""

    def settle(self, node: Node, response: ResponsePartitionData) -> None:
        proposal = node.proposal
        assert proposal is not None
        if response.error_code == ErrorCode.REQUEST_TIMED_OUT and proposal.is_pending:
            assert node.partition.in_sync is not None
            node.partition.in_sync.withdraw()
            node.partition.advance_high_watermark()
            node.proposal = None
        else:
            super().settle(node, response)


class CountsAnEarlierProcess(LosesPower):
    """The leader counts what a process has fetched after its broker was registered again (KIP-903)."""

    def alter(self, node: Node, proposed: ProposedData) -> ResponsePartitionData:
        for member in proposed.new_isr_with_epochs:
            member.broker_epoch = -1
        return super().alter(node, proposed)


@pytest.mark.parametrize(
    ("cluster", "symptom"),
    [
        (CountsAFollowerBeforeItHasTheRecords, "was acknowledged at .*, and is lost"),
        (TakesTheHighWatermarkOfADivergingResponse, "removes records below the high watermark"),
        (ForgetsAProposalAfterAnUnknownError, "are in sync, and .* count"),
        (CountsAnEarlierProcess, "ends at .*, below the high watermark"),
    ],
)
def test_a_planted_fault_is_found(cluster: type[Cluster], symptom: str) -> None:
    def run_all() -> None:
        for seed in range(50):
            run(seed, cluster=cluster)

    with pytest.raises(AssertionError, match=symptom):
        run_all()
