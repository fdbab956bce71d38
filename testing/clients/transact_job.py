"""The job `transact` of an adapter, with the program of a client that has transactional producers (`transactor`)."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from moldau.testing.client import ClientError
from moldau.testing.clients.commands import transactor_command
from moldau.testing.clients.program import Program

_STEP_SECONDS = 60.0
_RETRIES = 10
_NAME = "producer"


def transact(client: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Run the transactions of a job with one producer. Raises ClientError if the producer is fenced or cannot start."""
    program = Program(transactor_command(client))
    try:
        producer = _Producer(program, job["bootstrap"])
        producer.retried(
            lambda: producer.call(
                "open",
                transactional_id=job["transactional_id"],
                timeout_ms=60_000,
                codec="none",
                group_id=None,
                source=None,
            )
        )
        return {"outcomes": [_outcome(producer, each) for each in job["transactions"]]}
    finally:
        program.kill()
        program.close()


class _Producer:
    def __init__(self, program: Program, bootstrap: str) -> None:
        self._program = program
        self._bootstrap = bootstrap

    def call(self, op: str, **arguments: Any) -> None:
        self._program.call(_STEP_SECONDS, op=op, producer=_NAME, bootstrap_servers=self._bootstrap, **arguments)

    def retried(self, step: Callable[[], None]) -> None:
        """Repeat a step whose outcome is unknown, as the client's documentation says."""
        deadline = time.monotonic() + _STEP_SECONDS
        retries = 0
        while True:
            try:
                return step()
            except ClientError as error:
                retries += 1
                if error.code != "RETRIABLE" or retries == _RETRIES or time.monotonic() > deadline:
                    raise


def _outcome(producer: _Producer, transaction: Mapping[str, Any]) -> dict[str, Any]:
    try:
        producer.call("begin")
        producer.call(
            "produce",
            topic=transaction["topic"],
            partition=transaction["partition"],
            values=transaction["values"],
        )
        if transaction["commit"]:
            producer.retried(lambda: producer.call("commit"))
            return {"outcome": "committed"}
    except ClientError as error:
        if error.code == "FENCED":
            raise ClientError("PRODUCER_FENCED", str(error)) from error
        if error.code == "UNKNOWN":
            return {"outcome": "unknown", "error": str(error)}
        producer.retried(lambda: producer.call("abort"))
        return {"outcome": "aborted", "error": str(error)}
    producer.retried(lambda: producer.call("abort"))
    return {"outcome": "aborted"}


def read_committed(client: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """The values of committed records of one partition."""
    program = Program(transactor_command(client))
    try:
        found = program.call(
            _STEP_SECONDS, op="read", bootstrap_servers=job["bootstrap"], topics=[job["topic"]], committed=True
        )
    finally:
        program.kill()
        program.close()
    return {"records": [{"value": value} for value in found[job["topic"]][str(job["partition"])]]}
