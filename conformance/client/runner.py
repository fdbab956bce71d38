"""Runs scenarios: each worker has its own broker and its own adapter process."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from ...protocol.errors import KafkaError, MalformedMessage
from ...testing import Broker, BrokerError
from ...testing.request_log import Recorded
from ..outcome import InconclusiveError, MismatchError, NotApplicableError, Verdict
from .adapter import Adapter, JobError
from .scenario import Scenario
from .scene import Scene

REPORTED_REQUESTS: Final = 200
"""The requests of a failed scenario that are in its report: the last ones."""


class Result(NamedTuple):
    """The result of one scenario."""

    scenario: Scenario
    verdict: Verdict
    seconds: float
    reason: str = ""
    what: str = ""
    expected: str = ""
    actual: str = ""
    requests: tuple[Recorded, ...] = ()
    """What the client has sent, for a failed scenario."""


class Runner:
    """One run against one client."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        patience: float = 1.0,
        jobs: int = 2,
        finished: Callable[[Result], None] = lambda result: None,
    ) -> None:
        """`command` starts the adapter; `finished` is called after each scenario, by one thread at a time."""
        self._command = command
        self._patience = patience
        self._jobs = jobs
        self._finished = finished
        self._stop = threading.Event()
        self._adapters: set[Adapter] = set()
        self._lock = threading.Lock()
        self.interrupted = False

    def run(self, scenarios: Sequence[Scenario]) -> list[Result]:
        """The results in the order of the scenarios. After a KeyboardInterrupt the remaining ones are inconclusive."""
        waiting: queue.SimpleQueue[Scenario] = queue.SimpleQueue()
        for each in scenarios:
            waiting.put(each)
        results: dict[str, Result] = {}
        with ThreadPoolExecutor(self._jobs, thread_name_prefix="scenarios") as pool:
            workers = [pool.submit(self._work, waiting, results) for _ in range(min(self._jobs, len(scenarios)))]
            try:
                for worker in workers:
                    worker.result()
            except KeyboardInterrupt:
                self.interrupted = True
                self._stop.set()
                for adapter in list(self._adapters):
                    adapter.kill()  # ends what the workers wait for
        for each in scenarios:
            if each.id not in results:
                results[each.id] = Result(each, Verdict.INCONCLUSIVE, 0.0, "interrupted")
        return [results[each.id] for each in scenarios]

    def _work(self, waiting: queue.SimpleQueue[Scenario], results: dict[str, Result]) -> None:
        with Adapter(self._command) as adapter, Broker() as broker:
            self._adapters.add(adapter)
            while not self._stop.is_set():
                try:
                    scenario = waiting.get_nowait()
                except queue.Empty:
                    return
                began = time.monotonic()
                result = self._run_one(scenario, broker, adapter)
                if self._stop.is_set():
                    return
                with self._lock:
                    results[scenario.id] = result._replace(seconds=time.monotonic() - began)
                    self._finished(results[scenario.id])

    def _run_one(self, scenario: Scenario, broker: Broker, adapter: Adapter) -> Result:
        try:
            if not broker.running:
                broker.start()
            broker.reset()
            broker.requests.clear()
        except (BrokerError, OSError, KafkaError) as error:
            return Result(scenario, Verdict.INCONCLUSIVE, 0.0, f"the broker cannot be prepared: {error}")
        failure: MismatchError
        try:
            scenario.run(Scene(broker, adapter, self._patience))
            return Result(scenario, Verdict.PASSED, 0.0)
        except NotApplicableError as reason:
            return Result(scenario, Verdict.NOT_APPLICABLE, 0.0, str(reason))
        except InconclusiveError as reason:
            return Result(scenario, Verdict.INCONCLUSIVE, 0.0, str(reason))
        except MismatchError as found:
            failure = found
        except JobError as error:
            failure = MismatchError("the job", "no error", str(error))
        except (BrokerError, OSError, KafkaError, MalformedMessage) as error:
            return Result(scenario, Verdict.INCONCLUSIVE, 0.0, f"the broker failed: {error}")
        except Exception:  # noqa: BLE001 - an answer of the adapter that the scenario cannot read
            last = traceback.format_exc().strip().splitlines()
            return Result(scenario, Verdict.INCONCLUSIVE, 0.0, "; ".join(last[-3:]))
        adapter.kill()  # it may still be at work
        requests: tuple[Recorded, ...] = ()
        if broker.running:
            broker.faults.clear()
            requests = tuple(broker.requests.all()[-REPORTED_REQUESTS:])
        return Result(
            scenario, Verdict.FAILED, 0.0, str(failure), failure.what, failure.expected, failure.actual, requests
        )


def to_json(client: str, results: Sequence[Result], *, complete: bool) -> dict[str, Any]:
    """The report; its form is that of `moldau conformance`, with `client` instead of `server`."""
    return {
        "client": client,
        "complete": complete,
        "summary": {verdict.value: sum(each.verdict is verdict for each in results) for verdict in Verdict},
        "cases": [_case(each) for each in results],
    }


def _case(result: Result) -> dict[str, Any]:
    scenario = result.scenario
    found: dict[str, Any] = {
        "id": scenario.id,
        "area": scenario.area,
        "level": scenario.level.value,
        "title": scenario.title,
        "verdict": result.verdict.value,
        "seconds": round(result.seconds, 3),
    }
    if result.reason:
        found["reason"] = result.reason
    if result.verdict is Verdict.FAILED:
        found |= {"what": result.what, "expected": result.expected, "actual": result.actual}
        found |= {"broker": scenario.broker, "job": scenario.job, "expects": scenario.expects}
        found["requests"] = [
            {
                "seconds": round(each.seconds, 3),
                "request": repr(each).strip("<>"),
                "fault": each.fault,
                "hex": each.data[:256].hex(),
            }
            for each in result.requests
        ]
    return found
