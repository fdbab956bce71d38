"""The suite notices small defects of a server: a proxy mutates single requests or responses of a correct one.

For each mutation, the cases that it names run through the proxy until one has failed. A mutation that no case detects
means that a case is missing, or that a case compares too little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

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

# About the cases, which are the same on every Python.
pytestmark = pytest.mark.slow

# A mutation may make a case wait for its deadline, which is short: most cases take milliseconds against this server.
PATIENCE = 0.1
# CI's machine runs other tests in parallel.
PATIENCE_WITHOUT_DEFECT = 4.0
# One of this many mutations, in each area, is in `make test`; the full run has all of them.
IN_EACH_RUN = 16
# Few cases at a time, because the first that fails ends the run.
JOBS = 4

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
def without_defect(broker: Broker) -> Iterator[Target]:
    with MutatingProxy(broker.bootstrap_servers, SAME) as proxy:
        target = Target(proxy.address, patience=PATIENCE)
        target.describe()
        yield target


def select(*prefixes: str) -> list[Case]:
    return catalog.select(ids=prefixes, layers=[Layer.WIRE, Layer.CONTRACT])


def first_failure(target: Target, cases: Sequence[Case]) -> Case | None:
    """Run the cases until one has failed."""
    failed: list[Case] = []

    def finished(result: Result) -> None:
        if result.verdict is Verdict.FAILED and not failed:
            failed.append(result.case)
            raise KeyboardInterrupt

    Runner(target, jobs=JOBS, finished=finished).run(cases)
    return failed[0] if failed else None


def target_of(proxy: MutatingProxy, server: str) -> Target:
    target = Target(proxy.address, patience=PATIENCE)
    try:
        target.describe()
    except (OSError, KafkaError, MalformedMessage):
        # `moldau conformance` would report this defect before it runs a case.
        correct = Target(server)
        correct.describe()
        vars(target).update(vars(correct), address=proxy.address, patience=PATIENCE)
    return target


def test_there_are_enough_mutations() -> None:
    assert len({mutation.id for mutation in MUTATIONS}) == len(MUTATIONS) >= 100


def test_the_proxy_changes_nothing_by_itself(without_defect: Target) -> None:
    target = Target(without_defect.address, patience=PATIENCE_WITHOUT_DEFECT)
    target.describe()
    cases = [case for case in select() if ".exchange" in case.id or case.area in ("produce", "fetch", "protocol")]
    results = Runner(target).run(cases)
    assert [
        f"{result.case.id}: {result.verdict}, {result.reason}"
        for result in results
        if result.verdict not in (Verdict.PASSED, Verdict.NOT_APPLICABLE)
    ] == []


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(mutation, id=mutation.id, marks=[] if number % IN_EACH_RUN == 0 else pytest.mark.full)
        for number, mutation in enumerate(MUTATIONS)
    ],
)
def test_a_defect_is_detected(broker: Broker, without_defect: Target, mutation: Mutation) -> None:
    cases = select(*mutation.cases)
    assert cases, f"no case has one of these IDs: {mutation.cases}"
    with MutatingProxy(broker.bootstrap_servers, mutation) as proxy:
        target, correct = target_of(proxy, broker.bootstrap_servers), copy(without_defect)
        detected = is_detected(target, correct, cases)
        # On a busy machine, cases may have taken longer than the short deadline: all of them, or what comes before the
        # response that is changed.
        if not detected or not proxy.changed:
            target.patience = correct.patience = PATIENCE_WITHOUT_DEFECT
            detected = is_detected(target, correct, cases)
        assert proxy.changed, "the mutation has changed nothing"
    assert detected, f"{mutation.title}: not detected by any of {len(cases)} cases"


def is_detected(target: Target, correct: Target, cases: Sequence[Case]) -> bool:
    """Whether one of the cases fails with the defect, and not without it."""
    while failed := first_failure(target, cases):
        if first_failure(correct, [failed]) is None:
            return True
        # It takes longer than the deadline.
        cases = [case for case in cases if case is not failed]
    return False
