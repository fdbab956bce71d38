"""Runs cases side by side and turns how each ends into its verdict."""

from __future__ import annotations

import contextlib
import linecache
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final

from ..protocol.api import ApiKey
from ..protocol.errors import KafkaError, MalformedMessage
from . import leftovers
from .case import Case, Layer
from .check import Check
from .crashes import Crashes
from .outcome import InconclusiveError, MismatchError, NotApplicableError, Result, Verdict
from .real_clients import RealClients
from .target import RESPONSE_SECONDS, Target

DEFAULT_JOBS: Final = 16
_CRASH_JOBS: Final = 64
_CLIENT_JOBS: Final = 4
_POLL_SECONDS: Final = 0.2
_CHANGE_SECONDS: Final = 5.0
"""How long interrupted cases wait for the responses to what they change."""
_CLEAN_UP_SECONDS: Final = 15.0
"""How long interrupted cases may take to end and to clean up."""
_LOST_WITHIN: Final = 60.0
_LOST: Final = "the server is lost: it no longer responds"
_INTERRUPTED: Final = "interrupted"
_SOURCE_CHARACTERS: Final = 300


class Runner:
    """One run of cases against a target. `run` returns the results in the order of the cases."""

    def __init__(
        self,
        target: Target,
        *,
        jobs: int = DEFAULT_JOBS,
        alter_configs: bool = True,
        clients: Collection[str] = (),
        finished: Callable[[Result], None] = lambda result: None,
    ) -> None:
        """`clients`: those whose cases apply. `finished` is called in the caller's thread after each case."""
        self._target = target
        self._jobs = jobs
        self._alter_configs = alter_configs
        self._finished = finished
        self.prefix = f"conformance-{uuid.uuid4().hex[:8]}"
        """The names of all topics and groups of this run begin with it."""
        self._stop = threading.Event()
        self._running: set[Check] = set()
        # A signal handler may interrupt the thread that holds it.
        self._lock = threading.RLock()
        self._number = 0
        self._crashes = Crashes(target)
        self._clients = RealClients(clients)
        self._disconnected: dict[str, float] = {}
        """The cases that failed because their connection ended, and when."""
        self.interrupted = False
        self.abandoned = False
        """Whether `interrupt` was called again before the interrupted cases had cleaned up."""
        self.lost = False
        self.left_behind = False
        """Whether topics or groups of this run may still exist."""

    def run(self, cases: Sequence[Case]) -> list[Result]:
        """Run the cases: those of the layer `clients` after the others, then the exclusive ones, one at a time,
        and at the end those that crash the server together.

        `interrupt` ends the running cases and returns the results so far; `interrupted` is then true, and the remaining
        cases are inconclusive. The same happens with `lost` if the server no longer responds.
        """
        results: dict[str, Result] = {}
        others = [case for case in cases if case.layer not in (Layer.CRASH, Layer.CLIENTS)]
        self._run_some([case for case in others if not case.exclusive], self._jobs, results)
        # Their processes would delay the responses to the cases above.
        try:
            clients = [case for case in cases if case.layer is Layer.CLIENTS]
            self._run_some(clients, min(self._jobs, _CLIENT_JOBS), results)
        finally:
            self._clients.close()
        self._run_some([case for case in others if case.exclusive], 1, results)
        # Waiting for the crash costs nothing, and together they need only one.
        crash_jobs = max(self._jobs, _CRASH_JOBS) if self._jobs > 1 else 1
        self._run_some([case for case in cases if case.layer is Layer.CRASH], crash_jobs, results)
        if self.lost:
            self._excuse(results)
        ended_well = {Verdict.PASSED, Verdict.NOT_APPLICABLE}
        if self.lost or self.abandoned:
            self.left_behind = True
        elif self.interrupted or any(each.verdict not in ended_well for each in results.values()):
            self.left_behind |= not leftovers.remove(self._target, self.prefix)
        for case in cases:
            if case.id not in results:
                results[case.id] = Result(case, Verdict.INCONCLUSIVE, 0.0, self._end_reason())
                self._finished(results[case.id])
        return [results[case.id] for case in cases]

    def interrupt(self) -> None:
        """End the run, from a signal handler or another thread; the running cases still clean up.

        The second call ends `run` without waiting for that.
        """
        if self._stop.is_set():
            self.abandoned = True
        self.interrupted = True
        self._stop.set()
        self._close_connections(now=self.abandoned)

    def _run_some(self, cases: Sequence[Case], jobs: int, results: dict[str, Result]) -> None:
        waiting = list(reversed(cases))
        running: set[Future[Result]] = set()
        stopped_at: float | None = None
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="case")
        try:
            while (waiting and not self._stop.is_set()) or running:
                try:
                    while waiting and len(running) < jobs and not self._stop.is_set():
                        running.add(pool.submit(self._run_one, waiting.pop()))
                    done, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
                    for future in done:
                        running.discard(future)
                        self._collect(future.result(), results)
                except KeyboardInterrupt:
                    self.interrupt()
                if self._stop.is_set():
                    stopped_at = stopped_at or time.monotonic()
                    since = (time.monotonic() - stopped_at) / self._target.patience
                    if since > _CHANGE_SECONDS:
                        self._close_connections(now=True)
                    self.abandoned |= bool(running) and since > _CLEAN_UP_SECONDS
                    if self.abandoned:
                        return
        finally:
            pool.shutdown(wait=not self.abandoned, cancel_futures=True)

    def _collect(self, result: Result, results: dict[str, Result]) -> None:
        results[result.case.id] = result
        self._finished(result)
        if result.verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE) and not self._stop.is_set() and self._is_lost():
            self.lost = not self.interrupted
            self._stop.set()
            self._close_connections(now=True)

    def _excuse(self, results: dict[str, Result]) -> None:
        """The cases that ran when the server was lost have not failed; one of them may be the reason."""
        names = sorted(each for each, when in self._disconnected.items() if when > time.monotonic() - _LOST_WITHIN)
        for name in names:
            found = results.get(name)
            if found is not None and found.verdict is Verdict.FAILED:
                reason = f"{_LOST}. It stopped while this case ran"
                if len(names) > 1:
                    reason += f", and {len(names) - 1} others; repeat them with --jobs 1 if one of them stops it"
                results[name] = Result(found.case, Verdict.INCONCLUSIVE, found.seconds, reason, frames=found.frames)

    def _end_reason(self) -> str:
        """Why the run has ended early."""
        return (self._crashes.failure or _LOST) if self.lost else _INTERRUPTED

    def _close_connections(self, *, now: bool) -> None:
        """End what the running cases wait for: unless `now`, after the response if it is to a change of the server."""
        self._crashes.interrupt()
        with self._lock:
            pending = [check.interrupt(now=now) for check in self._running]
        self.left_behind |= now and any(pending)

    def _is_lost(self) -> bool:
        """Whether the server refuses a connection several times in a row, or accepts it and does not respond.

        While crash cases restart it, it is not lost.
        """
        if self._crashes.failure is not None:
            return True
        with self._crashes.none_in_progress():
            for pause in (0.0, 0.2, 0.5, 1.0):
                time.sleep(pause * self._target.patience)
                began = time.monotonic()
                if self._stop.is_set() or self._target.responds():
                    return False
                if time.monotonic() - began > RESPONSE_SECONDS * self._target.patience / 2:
                    return True
        return True

    # One case

    def _run_one(self, case: Case) -> Result:
        reason = self._not_applicable(case)
        if reason is not None:
            return Result(case, Verdict.NOT_APPLICABLE, 0.0, reason)
        if case.client is not None:
            try:
                self._clients.prepare(case.client)
            except InconclusiveError as reason_of_failure:
                return Result(case, Verdict.INCONCLUSIVE, 0.0, str(reason_of_failure))
        with self._lock:
            self._number += 1
            number = self._number
        crashes = case.layer is Layer.CRASH
        with self._crashes.running() if crashes else contextlib.nullcontext():
            began = time.monotonic()
            check = Check(self._target, f"{self.prefix}-{number}", case.seconds * self._target.patience)
            check.crashes = self._crashes if crashes else None
            check.clients = self._clients if case.client is not None else None
            with self._lock:
                self._running.add(check)
            if self._stop.is_set():
                check.interrupt(now=True)
            try:
                result = self._verdict(case, check)
            finally:
                with self._lock:
                    self._running.discard(check)
                check.close()
                check.clean_up()
        return result._replace(seconds=time.monotonic() - began)

    def _not_applicable(self, case: Case) -> str | None:
        target = self._target
        if case.client is not None:
            reason = self._clients.reason_against(case.client)
            if reason is not None:
                return reason
        for need in case.needs:
            if not target.supports(need.api, need.version):
                return f"the server does not have {ApiKey(need.api).message_name} v{need.version}"
        for feature, level in case.features:
            if target.features.get(feature, 0) < level:
                return f"the feature {feature} is not finalized at level {level}"
        if case.since is not None and target.release < case.since:
            return f"since Apache Kafka {case.since}; the server has the protocol of {target.release}"
        if case.until is not None and target.release >= case.until:
            return f"until Apache Kafka {case.until}; the server has the protocol of {target.release}"
        # A server that lists no broker at all has one, and a defect that the cases must find.
        if max(len(target.brokers), 1) < case.brokers:
            return f"it needs {case.brokers} brokers; the cluster has {len(target.brokers)}"
        if case.alters_configs and not self._alter_configs:
            return "it changes settings of the server, and --no-alter-configs was given"
        if case.layer is Layer.CRASH and target.restart is None:
            return "it restarts the server; use --restart-command and --kill-command"
        return None

    def _verdict(self, case: Case, check: Check) -> Result:
        try:
            case.run(check)
            return Result(case, Verdict.PASSED, 0.0)
        except NotApplicableError as reason:
            return Result(case, Verdict.NOT_APPLICABLE, 0.0, str(reason))
        except MismatchError as found:
            failure = found
        except InconclusiveError as reason:
            if self._stop.is_set():
                return Result(case, Verdict.INCONCLUSIVE, 0.0, self._end_reason())
            return Result(case, Verdict.INCONCLUSIVE, 0.0, str(reason), frames=check.recorder.frames())
        except TimeoutError:
            request = check.recorder.last_request() or "what it waited for"
            self._disconnected[case.id] = time.monotonic()
            seconds = case.seconds * self._target.patience
            failure = MismatchError(request, "a response", f"none before the deadline of {seconds:g} s")
        except MalformedMessage as error:
            request = check.recorder.last_request() or "the response"
            failure = MismatchError(request, "a response in the format of its version", f"bytes that are not: {error}")
        except KafkaError as error:
            return Result(case, Verdict.NOT_APPLICABLE, 0.0, str(error))
        except OSError as error:
            request = check.recorder.last_request() or "the connection"
            self._disconnected[case.id] = time.monotonic()
            failure = MismatchError(request, "a response", str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001 - whatever a response makes a case do is a failure
            # A response without the part that the case reads, for example null or an empty array.
            title = check.recorder.last_response() or "response"
            failure = MismatchError(f"the {title}", "what the case reads from it", _described(error))
        if self._stop.is_set():
            return Result(case, Verdict.INCONCLUSIVE, 0.0, self._end_reason())
        return Result(
            case,
            Verdict.FAILED,
            0.0,
            str(failure),
            failure.what,
            failure.expected,
            failure.actual,
            check.recorder.frames(),
        )


def _described(error: Exception) -> str:
    """An exception of a case with the expression that raised it, which shows the field that it reads."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    first = place.lineno or 0
    lines = [linecache.getline(place.filename, number) for number in range(first, (place.end_lineno or first) + 1)]
    if lines and place.colno is not None and place.end_colno is not None:
        # Columns are bytes of UTF-8; the end first, because the line may be the same.
        lines[-1] = lines[-1].encode()[: place.end_colno].decode(errors="replace")
        lines[0] = lines[0].encode()[place.colno :].decode(errors="replace")
    source = " ".join(" ".join(lines).split())
    text = f"{type(error).__name__}: {error}"
    return f"{text} in `{source[:_SOURCE_CHARACTERS]}`" if source else text
