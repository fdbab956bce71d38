"""The suite notices small defects of a server: a proxy mutates single requests or responses of a correct one.

For each mutation, the cases that it names run through the proxy until one has failed. A mutation that no case detects
means that a case is missing, or that a case compares too little.
"""

from __future__ import annotations

from collections.abc import Iterator

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

# A mutation may make a case wait for its deadline. It is short, because cases take milliseconds against this server.
PATIENCE = 0.2
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


def cases_of(mutation: Mutation) -> list[Case]:
    return catalog.select(ids=mutation.cases, layers=[Layer.WIRE, Layer.CONTRACT])


def results(server: str, mutation: Mutation, cases: list[Case], *, patience: float, until_failed: bool) -> list[Result]:
    """Run the cases through the proxy, until one has failed or, if `until_failed` is false, to the end."""
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
        found = Runner(target, finished=finished).run(cases)
        if until_failed:
            assert proxy.changed, "the mutation has changed nothing"
        return found


def test_the_proxy_changes_nothing_by_itself(broker: Broker) -> None:
    prefixes = sorted({prefix for mutation in MUTATIONS for prefix in mutation.cases})
    everything = SAME._replace(cases=tuple(prefixes))
    found = results(
        broker.bootstrap_servers,
        everything,
        cases_of(everything),
        patience=PATIENCE_WITHOUT_DEFECT,
        until_failed=False,
    )
    wrong = [f"{result.case.id}: {result.reason}" for result in found if result.verdict is Verdict.FAILED]
    assert wrong == []
    assert sum(result.verdict is Verdict.PASSED for result in found) > len(found) // 2


def test_there_are_enough_mutations() -> None:
    assert len({mutation.id for mutation in MUTATIONS}) == len(MUTATIONS) >= 100


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_a_defect_is_detected(broker: Broker, mutation: Mutation) -> None:
    cases = cases_of(mutation)
    assert cases, f"no case has one of these IDs: {mutation.cases}"
    found = results(broker.bootstrap_servers, mutation, cases, patience=PATIENCE, until_failed=True)
    failed = [result.case.id for result in found if result.verdict is Verdict.FAILED]
    verdicts = {result.case.id: f"{result.verdict}: {result.reason}" for result in found}
    assert failed, f"not detected: {mutation.title}; {verdicts}"
