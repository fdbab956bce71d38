"""An adapter of `moldau conformance-client` for a client that this package drives.

    python -m moldau.testing.clients.adapter kafka-python

`moldau.conformance.client.adapter` describes its input and output.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from moldau.testing.client import Client, ClientError, Record
from moldau.testing.clients import client_class
from moldau.testing.clients.group_job import Unsupported, consume_group
from moldau.testing.clients.program import close_programs
from moldau.testing.clients.transact_job import read_committed, transact


def main(arguments: list[str]) -> int:
    """Do jobs until the end of standard input."""
    (name,) = arguments
    # What a client's library prints must not be mistaken for an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        for line in sys.stdin:
            job = json.loads(line)
            answers.write(json.dumps({"id": job["id"], **_answer(name, job)}) + "\n")
    finally:
        close_programs()
    return 0


def _answer(name: str, job: dict[str, Any]) -> dict[str, Any]:
    try:
        match job["job"]:
            case "consume_group":
                return consume_group(name, job)
            case "transact":
                return transact(name, job)
            case "consume" if job["options"].get("isolation") == "read_committed":
                return read_committed(name, job)
        with client_class(name)(job["bootstrap"]) as client:
            return _do(client, job)
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except ClientError as error:
        return {"error": {"code": error.code, "message": str(error)}}
    except AssertionError as error:  # a driver's own deadline
        return {"error": {"code": "TIMEOUT", "message": str(error)}}


def _do(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    match job["job"]:
        case "produce":
            records = [Record(value.encode(), partition=job["partition"]) for value in job["values"]]
            delivered = client.produce(job["topic"], records, **job["options"])
            return {
                "acknowledged": [
                    {"value": value, "offset": each.offset}
                    for value, each in zip(job["values"], delivered, strict=True)
                ]
            }
        case "consume":
            received = client.read(job["topic"], job["partition"], job["start"])
            return {"records": [{"value": (each.value or b"").decode(), "offset": each.offset} for each in received]}
        case "offset_for_time":
            return {"offset": client.offset_for_time(job["topic"], job["partition"], job["timestamp"])}
        case "create_topic":
            client.send_create_topic(job["topic"], job["partitions"], {})
            return {}
        case "delete_topic":
            client.delete_topic(job["topic"])
            return {}
        case "create_partitions":
            client.create_partitions(job["topic"], job["total"])
            return {}
        case "list_topics":
            return {"topics": client.topics()}
        case "delete_records":
            return {"offset": client.delete_records(job["topic"], job["partition"], job["offset"])}
        case "commit":
            client.commit_offset(job["group"], job["topic"], job["partition"], job["offset"])
            return {}
        case "committed":
            return {"offset": client.committed_offset(job["group"], job["topic"], job["partition"])}
        case unknown:
            return {"unsupported": f"this adapter has no job {unknown!r}"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
