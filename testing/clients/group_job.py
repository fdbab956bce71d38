"""The job `consume_group` of an adapter, with the program of a client that is a member of a group (`group_member`)."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from moldau.testing.client import ClientError
from moldau.testing.clients import client_class
from moldau.testing.clients.commands import member_command
from moldau.testing.clients.group_member import Options

_PROTOCOLS: Mapping[str, Mapping[str, str]] = {
    "classic": dict.fromkeys(("kafka-python", "confluent-kafka", "aiokafka", "java", "franz-go"), "range"),
    "consumer": dict.fromkeys(("confluent-kafka", "java", "franz-go"), "consumer"),
}
_FATAL = frozenset(
    {
        "FENCED_INSTANCE_ID", "GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "GROUP_MAX_SIZE_REACHED",
        "INCONSISTENT_GROUP_PROTOCOL", "INVALID_GROUP_ID", "INVALID_SESSION_TIMEOUT", "OFFSET_OUT_OF_RANGE",
        "UNRELEASED_INSTANCE_ID", "UNSUPPORTED_ASSIGNOR", "UNSUPPORTED_VERSION",
    }
)  # fmt: skip
"""Errors that an application ends for. Clients report others too, and go on."""


class Unsupported(Exception):  # noqa: N818 - what the client does not have
    """The client does not have what the job needs."""


def consume_group(client: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Be a member until all records are consumed and committed. Raises ClientError and Unsupported."""
    if client == "kcat":
        return _consume_with_kcat(job)
    options = job["options"]
    protocol = _PROTOCOLS[options.get("protocol", "classic")].get(client)
    if protocol is None:
        raise Unsupported(f"{client} has no groups of the new protocol (KIP-848)")
    member = Options(
        bootstrap_servers=job["bootstrap"],
        group_id=job["group"],
        topic=job["topic"],
        protocol=protocol,
        instance_id=options.get("instance_id"),
        session_timeout_ms=options.get("session_timeout_ms", 10_000),
    )
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            member_command(client, member), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            records = _consumed(process.stdout, job["count"], lambda ends: _are_committed(client, job, ends))
            process.stdin.close()
            process.stdout.read()  # what it reports while it leaves
            process.wait()
        except EOFError as error:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise ClientError(str(error) or "the consumer ended", last) from error
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
    return {"records": records}


def _consume_with_kcat(job: Mapping[str, Any]) -> dict[str, Any]:
    """kcat is a member of a group until it has printed so many records; it commits them when it leaves."""
    from moldau.testing.clients.kcat import KcatClient

    if job["options"].get("protocol", "classic") != "classic" or "instance_id" in job["options"]:
        raise Unsupported("kcat joins only classic groups here, and as a dynamic member")
    with KcatClient(job["bootstrap"]) as kcat:
        received = kcat.consume_group(job["group"], job["topic"], job["count"])
    return {"records": [{"partition": each.partition, "offset": each.offset} for each in received]}


def _are_committed(client: str, job: Mapping[str, Any], ends: Mapping[int, int]) -> bool:
    """Whether the client sees committed offsets that are not below the ends of what was consumed, by partition."""
    with client_class(client)(job["bootstrap"]) as reader:
        for partition, end in ends.items():
            offset = reader.committed_offset(job["group"], job["topic"], partition)
            if offset is None or offset < end:
                return False
    return True


def _consumed(
    stdout: IO[bytes], count: int, are_committed: Callable[[Mapping[int, int]], bool]
) -> list[dict[str, int]]:
    """The consumed records in their order; duplicates too. Raises EOFError at the end of the program, with the last
    error that the client reported, and ClientError for an error that an application ends for."""
    records: list[dict[str, int]] = []
    distinct: set[tuple[int, int]] = set()
    last_error = ""
    was_refused = False
    for event in _events(stdout):
        match event["event"]:
            case "consumed":
                partition = event["partition"]
                offsets = range(event["first"], event["last"] + 1)
                records += [{"partition": partition, "offset": offset} for offset in offsets]
                distinct.update((partition, offset) for offset in offsets)
            # After a rebalance a commit may succeed because the member has no partition, or no record yet.
            case "committed" if len(distinct) >= count:
                ends: dict[int, int] = {}
                for partition, offset in distinct:
                    ends[partition] = max(ends.get(partition, 0), offset + 1)
                if not was_refused or are_committed(ends):
                    return records
            case "refused" | "revoked" | "lost":
                was_refused = True
            case "error":
                last_error = event["code"]
                if last_error in _FATAL:
                    raise ClientError(last_error, event["reason"])
    raise EOFError(last_error)


def _events(stdout: IO[bytes]) -> Iterator[dict[str, Any]]:
    for line in stdout:
        if line.endswith(b"\n"):
            yield json.loads(line)
