"""Cases against a cluster of several brokers: partitions have leaders, and groups coordinators, on all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.conformance import catalog
from moldau.conformance.outcome import Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.testing.cluster import Cluster
from moldau.testing.full_run import first_of
from moldau.testing.wire import WireClient

from .mutating_proxy import MutatingProxy, Mutation
from .mutations.cluster import CLUSTER_MUTATIONS

CASES = [
    "groups.describe.several",
    "configs.broker.other",
    "configs.incremental.resource",
    "consumer-groups.heartbeat.invalid",
    "consumer-groups.heartbeat.invalid-message",
    "brokers",
]

# One of this many mutations is in `make test`; the full run has all of them.
IN_EACH_RUN = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


def run(cluster: Cluster, broker_id: int, ids: list[str]) -> str:
    """The prefix of the names of topics and groups, after all cases have passed."""
    target = Target(cluster.broker(broker_id).address, patience=4.0)
    target.describe()
    assert target.node_id == broker_id
    runner = Runner(target)
    results = runner.run(catalog.select(ids=ids))
    allowed = (Verdict.PASSED, Verdict.NOT_APPLICABLE)
    assert [f"{each.case.id}: {each.reason}" for each in results if each.verdict not in allowed] == []
    for prefix in ids:
        assert any(each.case.id.startswith(prefix) and each.verdict is Verdict.PASSED for each in results), prefix
    return runner.prefix


@pytest.mark.parametrize("broker_id", first_of([1, 2]))
def test_cases_pass(cluster: Cluster, broker_id: int) -> None:
    """Broker 1 has the controller, to which broker 2 forwards requests."""
    run(cluster, broker_id, CASES)


def test_cases_leave_no_groups(cluster: Cluster) -> None:
    """These groups have no members, so that nothing else removes them."""
    prefix = run(cluster, 1, ["offsets.commit.exchange", "offsets.fetch.all"])
    for broker_id in cluster.broker_ids:
        with WireClient(cluster.broker(broker_id).address) as wire:
            groups = wire.call(ListGroupsRequest()).groups
        assert [each.group_id for each in groups if each.group_id.startswith(prefix)] == []


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(mutation, id=mutation.id, marks=[] if number % IN_EACH_RUN == 0 else pytest.mark.full)
        for number, mutation in enumerate(CLUSTER_MUTATIONS)
    ],
)
def test_a_defect_of_one_broker_is_detected(cluster: Cluster, mutation: Mutation) -> None:
    """A proxy between the suite and broker 1 has the defect."""
    cases = catalog.select(ids=mutation.cases)
    assert cases
    correct = Target(cluster.broker(1).address)
    correct.describe()
    with MutatingProxy(cluster.broker(1).address, mutation) as proxy:
        target = Target(proxy.address)
        vars(target).update(vars(correct), address=proxy.address)
        failed = [each for each in Runner(target).run(cases) if each.verdict is Verdict.FAILED]
        assert proxy.changed, "the mutation has changed nothing"
    assert failed, mutation.title
