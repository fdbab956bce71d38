"""The screens that create, change, empty and delete topics."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ..cli.cluster import Cluster, explain
from ..cli.configs import alter_settings
from ..cli.failure import Failure
from ..config.definition import ConfigSource
from ..protocol.errors import ErrorCode
from ..protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ..protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ..protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ..protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from .failures import BadRequest
from .fetching import Topic, load_topic
from .messages import natural
from .rendering import brokers_of, form_of, refuse_if_read_only, render

_TIMEOUT_MS: Final = 4000
_SERVERS_CHOICE: Final = -1
_TOPIC: Final = 2
_TO_THE_END: Final = -1
_SOURCES: Final = {
    int(ConfigSource.DYNAMIC_TOPIC_CONFIG): "topic",
    int(ConfigSource.DYNAMIC_BROKER_CONFIG): "broker",
    int(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG): "all brokers",
    int(ConfigSource.STATIC_BROKER_CONFIG): "broker's file",
    int(ConfigSource.DEFAULT_CONFIG): "default",
}

_HINTS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic does not exist",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic of this name exists already",
    ErrorCode.TOPIC_DELETION_DISABLED: "the server does not delete topics (delete.topic.enable=false)",
    ErrorCode.POLICY_VIOLATION: "records of a compacted topic cannot be deleted by offset; delete the topic instead",
}


def _new(request: Request) -> Response:
    refuse_if_read_only(request)
    return _new_page(request, {"name": "", "partitions": "", "replicas": "", "settings": ""})


def _new_page(request: Request, fields: dict[str, str], problem: str | None = None) -> Response:
    status = 422 if problem else 200
    return render(request, "topic_new.html", status=status, title="Create a topic", fields=fields, problem=problem)


async def _create(request: Request) -> Response:
    fields = {"name": "", "partitions": "", "replicas": "", "settings": "", **await form_of(request)}
    return await run_in_threadpool(_create_topic, request, fields)


def _create_topic(request: Request, fields: dict[str, str]) -> Response:
    name = fields["name"].strip()
    try:
        settings = _parse_settings(fields["settings"])
        wanted = CreatableTopic(
            name=name,
            num_partitions=_count(fields["partitions"], "number of partitions"),
            replication_factor=_count(fields["replicas"], "replication factor"),
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        with brokers_of(request).cluster() as cluster:
            (result,) = cluster.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)).topics
        if result.error_code:
            raise Failure(explain(result.error_code, result.error_message or None, _first_hint(result.error_code)))
    except Failure as failure:
        return _new_page(request, fields, failure.message)
    return RedirectResponse(f"/topics?{urlencode({'q': name, 'done': 'created'})}", status_code=303)


def _first_hint(code: int) -> dict[ErrorCode, str] | None:
    """Hints replace the server's message, which is better for all other errors."""
    return _HINTS if code in (ErrorCode.TOPIC_ALREADY_EXISTS,) else None


def _count(text: str, what: str) -> int:
    number = natural(text.strip(), what) if text.strip() else _SERVERS_CHOICE
    if number == 0 or number > 1_000_000:
        raise Failure(f"the {what} {text.strip()!r} is not from 1 to 1000000")
    return number


def _parse_settings(text: str) -> dict[str, str]:
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, value = line.partition("=")
        if line.strip() and not (equals and key.strip()):
            raise Failure(f"line {number} of the settings is not KEY=VALUE")
        if line.strip():
            found[key.strip()] = value.strip()
    return found


def _settings(request: Request) -> Response:
    name = request.path_params["name"]
    with brokers_of(request).cluster() as cluster:
        topic = load_topic(cluster, name)
        settings = _described(cluster, name)
    return render(
        request,
        "topic_settings.html",
        title=f"Settings of {name}",
        topic=topic,
        settings=settings,
        changed=sum(1 for each in settings if each["source"] == "topic"),
        records=sum(each.end - each.first for each in topic.bounds.values()),
        done=request.query_params.get("done"),
    )


def _described(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """All settings of a topic, those first that the topic overrides."""
    resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    (result,) = cluster.ask(request).results
    if result.error_code:
        raise Failure(f"cannot describe the settings of {name}: {explain(result.error_code, result.error_message)}")
    found = [
        {
            "name": each.name,
            "value": "[hidden]" if each.is_sensitive else each.value,
            "source": _SOURCES.get(each.config_source, str(each.config_source)),
            "documentation": each.documentation or "",
            "fixed": each.read_only,
        }
        for each in result.configs
    ]
    return sorted(found, key=lambda each: (each["source"] != "topic", each["name"]))


async def _change(request: Request) -> Response:
    fields = await form_of(request)
    return await run_in_threadpool(_change_topic, request, request.path_params["name"], fields)


def _change_topic(request: Request, name: str, fields: dict[str, str]) -> Response:
    action = fields.get("action", "")
    with brokers_of(request).cluster() as cluster:
        match action:
            case "set":
                alter_settings(cluster, "topic", name, {fields.get("key", ""): fields.get("value", "")}, ())
            case "reset":
                alter_settings(cluster, "topic", name, {}, [fields.get("key", "")])
            case "partitions":
                _add_partitions(cluster, name, natural(fields.get("count", ""), "number of partitions"))
            case "empty":
                _delete_records(cluster, load_topic(cluster, name))
            case "delete":
                if fields.get("confirmed") != name:
                    raise BadRequest(
                        f"type the name of the topic to delete it; {fields.get('confirmed')!r} is not {name!r}"
                    )
                _delete(cluster, name)
                return RedirectResponse("/topics?done=deleted", status_code=303)
            case _:
                raise BadRequest(f"{action!r} is no change of a topic")
    return RedirectResponse(f"/topics/{quote(name)}/settings?{urlencode({'done': action})}", status_code=303)


def _add_partitions(cluster: Cluster, name: str, count: int) -> None:
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    (result,) = cluster.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)).results
    if result.error_code:
        raise Failure(f"cannot add partitions to {name}: {explain(result.error_code, result.error_message)}")


def _delete_records(cluster: Cluster, topic: Topic) -> None:
    """Delete all records, up to the high watermark of each partition."""
    by_leader: dict[int, list[DeleteRecordsPartition]] = {}
    for partition in topic.bounds:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=_TO_THE_END)
        by_leader.setdefault(topic.leaders[partition], []).append(wanted)
    for leader, partitions in by_leader.items():
        topics = [DeleteRecordsTopic(name=topic.name, partitions=partitions)]
        answer = cluster.ask_broker(leader, DeleteRecordsRequest(topics=topics, timeout_ms=_TIMEOUT_MS))
        for each in answer.topics[0].partitions:
            if each.error_code:
                reason = explain(each.error_code, None, _HINTS)
                raise Failure(f"cannot delete the records of {topic.name}-{each.partition_index}: {reason}")


def _delete(cluster: Cluster, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=_TIMEOUT_MS)
    (result,) = cluster.ask(request).responses
    if result.error_code:
        raise Failure(f"cannot delete {name}: {explain(result.error_code, result.error_message, _HINTS)}")


ROUTES: Final = [
    Route("/create-topic", _new, methods=["GET"]),
    Route("/create-topic", _create, methods=["POST"]),
    Route("/topics/{name}/settings", _settings, methods=["GET"]),
    Route("/topics/{name}/settings", _change, methods=["POST"]),
]
