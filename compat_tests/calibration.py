"""Runs the whole conformance suite several times on Moldau, Apache Kafka 4.3.1 and Apache Kafka 3.9.1.

    python -m moldau.compat_tests.calibration [--rounds 3] [--busy] [--server NAME] [--case CASE] [--clients CLIENT]

The exit code is 1 if a case failed or was inconclusive: a case that one of these servers fails is a wrong case. With
`--busy` one process per core computes at the same time, as on a busy machine.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence

from moldau.compat_tests.conformance_servers import CALIBRATION, CLUSTERS, WITH_TLS, ConformanceServer, by_name
from moldau.conformance import catalog, real_clients
from moldau.conformance.case import Case
from moldau.conformance.outcome import Verdict
from moldau.conformance.reports import summary
from moldau.conformance.runner import Runner


def _compute() -> None:
    while True:
        pass


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """One process that computes for each core."""
    processes = [
        multiprocessing.get_context("spawn").Process(target=_compute, daemon=True) for _ in range(os.cpu_count() or 1)
    ]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def rounds_on(
    server: ConformanceServer, cases: Sequence[Case], rounds: int, patience: float, clients: Sequence[str] = ()
) -> int:
    """Run the cases this many times on one server, print the problems, and return their number."""
    wrong = 0
    with server.open(patience) as target:
        target.describe()
        for number in range(1, rounds + 1):
            began = time.monotonic()
            results = Runner(target, clients=clients).run(cases)
            print(
                f"{server.name}, round {number} of {rounds}: {summary.in_words(results)} "
                f"in {time.monotonic() - began:.1f} s",
                flush=True,
            )
            for result in results:
                if result.verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE):
                    wrong += 1
                    print(f"  {result.case.id} {result.verdict}: {result.reason}", flush=True)
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m moldau.compat_tests.calibration", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="all cores compute at the same time")
    parser.add_argument("--server", action="append", default=[], help="only this one: moldau, apache-kafka-4.3.1, ...")
    parser.add_argument("--case", action="append", default=[], help="only this case, or the cases below it")
    parser.add_argument(
        "--clients", action="append", default=[], help="also this real client, or all; `--case clients` implies all"
    )
    parser.add_argument("--patience", type=float, default=1.0)
    options = parser.parse_args(arguments)
    try:
        servers = by_name(tuple(options.server), (*CALIBRATION, *CLUSTERS, *WITH_TLS))
    except ValueError as error:
        parser.error(str(error))
    cases, clients = catalog.select(ids=options.case), real_clients.selected(options.clients, ids=options.case)
    if not cases:
        parser.error("no such case")
    with busy_cores() if options.busy else contextlib.nullcontext():
        wrong = sum(rounds_on(server, cases, options.rounds, options.patience, clients) for server in servers)
    print(f"{wrong or 'no'} wrong results")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
