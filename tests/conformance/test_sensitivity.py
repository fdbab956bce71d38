"""The suite notices small defects of a server: a proxy mutates single requests or responses of a correct one.

For each mutation, the cases that it names run through the proxy until one has failed. A mutation that no case detects
means that a case is missing, or that a case compares too little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from moldau.conformance import catalog
from moldau.conformance.case import Case, Layer
from moldau.conformance.outcome import Result, Verdict
from moldau.conformance.runner import Runner
from moldau.conformance.target import Target
from moldau.protocol.errors import KafkaError, MalformedMessage
from moldau.testing import Broker

from .mutating_proxy import MutatingProxy, Mutation
from .mutations import MUTATIONS

# A mutation may make a case wait for its deadline. Cases that take long by themselves are used if there is no other.
PATIENCE = 0.1
FAST_SECONDS = 2.0
# CI's machine runs other tests beside it.
PATIENCE_WITHOUT_DEFECT = 4.0

SAME = Mutation(
    "same",
    "all requests and responses are decoded and encoded again",
    (),
    on_request=lambda exchange, request: None,
    on_response=lambda exchange, response: None,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Each mutation runs the same cases, and sessions of closed connections remain for two minutes.
    with Broker(config={"max.incremental.fetch.session.cache.slots": 100_000}) as broker:
        yield broker


@pytest.fixture(scope="module")
def without_defect(broker: Broker) -> dict[str, Result]:
    """The results of all cases that mutations name, through a proxy that changes nothing."""
    prefixes = sorted({prefix for mutation in MUTATIONS for prefix in mutation.cases})
    found, _ = run(
        broker.bootstrap_servers, SAME, select(prefixes), patience=PATIENCE_WITHOUT_DEFECT, until_failed=False
    )
    return {result.case.id: result for result in found}


def select(prefixes: Sequence[str]) -> list[Case]:
    return catalog.select(ids=prefixes, layers=[Layer.WIRE, Layer.CONTRACT])


def run(
    server: str, mutation: Mutation, cases: list[Case], *, patience: float, until_failed: bool
) -> tuple[list[Result], int]:
    """Run the cases through the proxy, until one has failed or to the end. Also returns what the mutation changed."""
    failed: list[Result] = []

    def finished(result: Result) -> None:
        if result.verdict is Verdict.FAILED and until_failed and not failed:
            failed.append(result)
            raise KeyboardInterrupt

    with MutatingProxy(server, mutation) as proxy:
        target = Target(proxy.address, patience=patience)
        try:
            target.describe()
        except (OSError, KafkaError, MalformedMessage):
            # `moldau conformance` would report this defect before it runs a case.
            correct = Target(server, patience=patience)
            correct.describe()
            vars(target).update(vars(correct), address=proxy.address)
        return Runner(target, finished=finished).run(cases), proxy.changed


def test_there_are_enough_mutations() -> None:
    assert len({mutation.id for mutation in MUTATIONS}) == len(MUTATIONS) >= 100


def test_the_proxy_changes_nothing_by_itself(without_defect: dict[str, Result]) -> None:
    wrong = (Verdict.FAILED, Verdict.INCONCLUSIVE)
    assert [f"{result.case.id}: {result.reason}" for result in without_defect.values() if result.verdict in wrong] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_a_defect_is_detected(broker: Broker, without_defect: dict[str, Result], mutation: Mutation) -> None:
    named = [without_defect[case.id] for case in select(mutation.cases)]
    passed = [result for result in named if result.verdict is Verdict.PASSED]
    assert passed, f"no case has one of these IDs: {mutation.cases}"
    chosen = [result for result in passed if result.seconds < FAST_SECONDS] or passed
    cases = [result.case for result in chosen]
    patience = max(PATIENCE, *(3 * result.seconds / result.case.seconds for result in chosen))
    found, changed = run(broker.bootstrap_servers, mutation, cases, patience=patience, until_failed=True)
    verdicts = {result.case.id: f"{result.verdict} {result.reason}" for result in found}
    assert changed, f"the mutation has changed nothing; {verdicts}"
    assert any(result.verdict is Verdict.FAILED for result in found), f"not detected: {mutation.title}; {verdicts}"
