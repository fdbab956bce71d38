"""Histories of three replicas: kills, lost messages, late metadata. Nothing that was acknowledged is lost.

The model must also find faults: one is planted.
"""

from __future__ import annotations

import pytest

from moldau.protocol.messages.fetch import PartitionData
from moldau.testing.full_run import in_full_run

from .replicas_model import Cluster, Node, Request, run


@pytest.mark.parametrize("seed", [*range(25), *in_full_run(*range(25, 1000))])
def test_no_acknowledged_record_is_lost(seed: int) -> None:
    run(seed)


class FailsOften(Cluster):
    failures = 4


@pytest.mark.parametrize("seed", [*range(20), *in_full_run(*range(20, 500))])
def test_no_acknowledged_record_is_lost_if_brokers_fail_often(seed: int) -> None:
    run(seed, cluster=FailsOften)


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


def test_a_planted_fault_is_found() -> None:
    def run_all() -> None:
        for seed in range(20):
            run(seed, cluster=CountsAFollowerBeforeItHasTheRecords)

    with pytest.raises(AssertionError, match=r"was acknowledged at .*, and is lost"):
        run_all()
