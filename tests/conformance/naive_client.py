"""An adapter of `moldau conformance-client` with its own client, which is correct or has one defect.

    python naive_client.py DEFECT [FILE]

It sends single requests, and repeats those that fail. It is not idempotent. FILE is created when it begins
to hang.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.records import iter_records
from moldau.testing.builders import batch
from moldau.testing.topic_requests import batches_of, fetch, produce
from moldau.testing.wire import WireClient

_RETRIES = 5


def main(defect: str, started: str | None = None) -> None:
    for line in sys.stdin:
        job = json.loads(line)
        if defect == "ends":
            print("it is over", file=sys.stderr)
            sys.exit(3)
        if defect == "hangs":
            if started is not None:
                Path(started).touch()
            time.sleep(600)
        if defect == "closes":
            os.close(sys.stdin.fileno())
            print(json.dumps({"id": job["id"], "acknowledged": []}), flush=True)
            time.sleep(600)
        if defect == "garbage":
            print("this is not JSON", flush=True)
            continue
        answer = _do(job, defect)
        if defect == "no-offsets":
            for each in answer.get("acknowledged", answer.get("records", [])):
                del each["offset"]
        elif defect == "no-list":
            answer = dict.fromkeys(answer, "all")
        elif defect == "no-answer":
            answer = {}
        print(json.dumps({"id": job["id"] + (defect == "wrong-id"), **answer}), flush=True)


def _do(job: dict[str, Any], defect: str) -> dict[str, Any]:
    if defect == "times-out":
        return {"error": {"code": "TIMEOUT", "message": "no end within 60 s"}}
    if defect == "unsupported":
        return {"unsupported": "this client only sleeps"}
    try:
        with WireClient(job["bootstrap"], client_id="naive") as wire:
            if job["job"] == "produce":
                return {"acknowledged": _produce(wire, job, defect)}
            return {"records": _consume(wire, job, defect)}
    except ConnectionError as error:
        return {"error": {"code": "NETWORK_EXCEPTION", "message": str(error)}}


def _produce(wire: WireClient, job: dict[str, Any], defect: str) -> list[dict[str, Any]]:
    values = list(reversed(job["values"])) if defect == "reorders" else list(job["values"])
    acknowledged = []
    for number, value in enumerate(values):
        if defect == "loses" and number == 3:
            acknowledged.append({"value": value, "offset": 3})
            continue
        offset = _append(wire, job["topic"], value)
        if defect == "duplicates" and number == 3:
            _append(wire, job["topic"], value)
        acknowledged.append({"value": value, "offset": offset + (defect == "wrong-offsets")})
    return acknowledged


def _append(wire: WireClient, topic: str, value: str) -> int:
    for _ in range(_RETRIES):
        answer = produce(wire, topic, batch(value.encode()), version=9)
        if answer.error_code == ErrorCode.NONE:
            break
    return answer.base_offset


def _consume(wire: WireClient, job: dict[str, Any], defect: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    offset = job["start"]
    while batches := batches_of(fetch(wire, job["topic"], offset)):
        for each in batches:
            if defect != "trusts" and not each.has_valid_crc():
                return _consume(wire, job, defect)
            found += [
                {"value": (record.value or b"").decode(errors="replace"), "offset": record.offset}
                for record in iter_records(each)
            ]
        offset = batches[-1].next_offset
    return found[1:] if defect == "skips" else found


if __name__ == "__main__":
    main(*sys.argv[1:])
