"""An adapter of `moldau conformance-client` and of the layer `clients` of `moldau conformance`, for a client that this
package drives.

    python -m moldau.testing.clients.adapter kafka-python

`moldau.conformance.client.adapter` describes its input and output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from moldau.testing.client import Client, ClientError, Feature, Received, Record
from moldau.testing.clients import client_class
from moldau.testing.clients.group_job import Unsupported, consume_group
from moldau.testing.clients.program import close_programs
from moldau.testing.clients.transact_job import read_committed, transact

_NEEDS: Final[Mapping[str, Feature]] = {
    "create_topic": Feature.TOPIC_ADMIN,
    "delete_topic": Feature.TOPIC_ADMIN,
    "create_partitions": Feature.TOPIC_ADMIN,
    "topic_configs": Feature.CONFIG_ADMIN,
    "set_topic_config": Feature.CONFIG_ADMIN,
    "delete_records": Feature.DELETE_RECORDS,
    "offsets": Feature.PARTITION_OFFSETS,
    "commit": Feature.COMMITTED_OFFSETS,
    "committed": Feature.COMMITTED_OFFSETS,
    "list_groups": Feature.GROUP_ADMIN,
    "describe_group": Feature.GROUP_ADMIN,
    "delete_group": Feature.DELETE_GROUPS,
}


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
        kind = client_class(name)
        _check(kind, job)
        with kind(job["bootstrap"]) as client:
            return _do(client, job)
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except ClientError as error:
        return {"error": {"code": error.code, "message": str(error)}}
    except AssertionError as error:  # a driver's own deadline
        return {"error": {"code": "TIMEOUT", "message": str(error)}}


def _check(kind: type[Client], job: dict[str, Any]) -> None:
    """Raise Unsupported if the client lacks a feature that the job needs."""
    needed = [_NEEDS[job["job"]]] if job["job"] in _NEEDS else []
    for record in job.get("records", ()):
        if any(value is None for _, value in record.get("headers", ())):
            needed.append(Feature.NULL_HEADERS)
        if record.get("timestamp") is not None:
            needed.append(Feature.SET_TIMESTAMP)
        if record.get("key") is None and record["value"] is None:
            needed.append(Feature.NULL_KEY_AND_VALUE)
    for feature in needed:
        if feature in kind.without:
            raise Unsupported(f"{kind.name} cannot {feature.value}: {kind.without[feature]}")


def _do(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    match job["job"]:
        case "produce":
            return {"acknowledged": _produce(client, job)}
        case "consume":
            limit = job["options"].get("max_bytes")
            received = client.read(job["topic"], job["partition"], job["start"], fetch_max_bytes=limit)
            return {"records": [_shown(each) for each in received]}
        case "offset_for_time":
            return {"offset": client.offset_for_time(job["topic"], job["partition"], job["timestamp"])}
        case "offsets":
            first, end = client.offsets(job["topic"], job["partition"])
            return {"first": first, "end": end}
        case "create_topic":
            client.send_create_topic(job["topic"], job["partitions"], job.get("configs", {}))
            return {}
        case "delete_topic":
            client.delete_topic(job["topic"])
            return {}
        case "create_partitions":
            client.create_partitions(job["topic"], job["total"])
            return {}
        case "list_topics":
            return {"topics": client.topics()}
        case "topic_configs":
            return {"configs": client.topic_configs(job["topic"])}
        case "set_topic_config":
            client.set_topic_config(job["topic"], job["key"], job["value"])
            return {}
        case "delete_records":
            return {"offset": client.delete_records(job["topic"], job["partition"], job["offset"])}
        case "commit":
            client.commit_offset(job["group"], job["topic"], job["partition"], job["offset"])
            return {}
        case "committed":
            return {"offset": client.committed_offset(job["group"], job["topic"], job["partition"])}
        case "list_groups":
            return {"groups": client.groups()}
        case "describe_group":
            found = client.describe_group(job["group"])
            return {"state": found.state, "members": found.members}
        case "delete_group":
            client.delete_group(job["group"])
            return {}
        case unknown:
            return {"unsupported": f"this adapter has no job {unknown!r}"}


def _produce(client: Client, job: dict[str, Any]) -> list[dict[str, Any]]:
    """What was acknowledged. A job has either `values` for one partition, or `records`."""
    given = job.get(
        "records", [{"value": value, "partition": job.get("partition", 0)} for value in job.get("values", ())]
    )
    records = [
        Record(
            _bytes(each["value"]),
            key=_bytes(each.get("key")),
            headers=tuple((name, _bytes(value)) for name, value in each.get("headers", ())),
            timestamp_ms=each.get("timestamp"),
            partition=each.get("partition", 0),
        )
        for each in given
    ]
    try:
        delivered = client.produce(job["topic"], records, **job["options"])
    except RuntimeError as error:
        # kafka-python and aiokafka compress with packages that need not be installed.
        if "not found" in str(error) and job["options"].get("codec", "none") != "none":
            raise Unsupported(f"{client.name}: {error}; pip install lz4 python-snappy zstandard cramjam") from error
        raise
    return [
        {"value": each["value"], "partition": done.partition, "offset": done.offset}
        for each, done in zip(given, delivered, strict=True)
    ]


def _shown(record: Received) -> dict[str, Any]:
    return {
        "value": _text(record.value),
        "key": _text(record.key),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _text(data: bytes | None) -> str | None:
    """Bytes that are not UTF-8 are visible, and differ from what was sent."""
    return None if data is None else data.decode(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
