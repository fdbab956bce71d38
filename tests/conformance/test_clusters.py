"""Cases against a cluster of several brokers: groups have coordinators on all of them."""

from __future__ import annotations

from moldau.conformance import catalog
from moldau.conformance.outcome import Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.testing.cluster import Cluster
from moldau.testing.wire import WireClient


def test_cases_pass_and_leave_no_groups() -> None:
    """These groups have no members, so that nothing else removes them."""
    cases = catalog.select(ids=["offsets.commit.exchange", "offsets.fetch.all"])
    with Cluster(brokers=2) as cluster:
        target = Target(cluster.broker(1).address)
        target.describe()
        results = Runner(target).run(cases)
        assert [f"{each.case.id}: {each.reason}" for each in results if each.verdict is not Verdict.PASSED] == []
        for broker_id in cluster.broker_ids:
            with WireClient(cluster.broker(broker_id).address) as wire:
                groups = wire.call(ListGroupsRequest()).groups
            assert [each.group_id for each in groups if each.group_id.startswith("conformance-")] == []
