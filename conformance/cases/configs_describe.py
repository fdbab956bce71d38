"""DescribeConfigs of topics: values, sources, synonyms, types, documentation, and which keys are returned."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from .. import configs as k
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check

DESCRIBE = needs(ApiKey.DESCRIBE_CONFIGS, 4)


def new_topic(c: Check, **values: str) -> k.Resource:
    """A topic with these configs, whose names have underscores."""
    named = {key.replace("_", "."): value for key, value in values.items()}
    return k.Resource(k.TOPIC, c.topic(configs=named).name)


@case(
    "configs.describe.exchange",
    "configs of a topic have values, sources and synonyms",
    source="KIP-133, KIP-226 and KIP-569",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CONFIGS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: DescribeConfigs with synonyms, for `segment.bytes`, which is set for the topic, and `max.message.bytes`,
    which is not.

    Expects: exactly these two. The first one has its value and source 1 (topic), and the synonyms `segment.bytes` of
    the topic and `log.segment.bytes` of the broker. The second one has the value, the source (2 to 5) and the synonyms
    of the broker's `message.max.bytes`. Neither is read-only or sensitive; since version 3, both have the type INT.

    Why: a tool shows which values are set for a topic and which ones a topic inherits, and from where.
    """
    resource = new_topic(c, segment_bytes="1048577")
    result = k.describe(c, resource, ["segment.bytes", "max.message.bytes"], version=version)
    c.error(result.error_code, ErrorCode.NONE)
    found = {each.name: each for each in result.configs}
    c.equal(
        (sorted(found), len(result.configs)), (["max.message.bytes", "segment.bytes"], 2), "configs (names, number)"
    )
    own, inherited = found["segment.bytes"], found["max.message.bytes"]
    c.equal((own.value, own.config_source), ("1048577", k.DYNAMIC_TOPIC), "segment.bytes (value, config_source)")
    for each, of_broker in ((own, "log.segment.bytes"), (inherited, "message.max.bytes")):
        c.equal((each.read_only, each.is_sensitive), (False, False), f"{each.name} (read_only, is_sensitive)")
        if version >= 3:
            c.equal(each.config_type, k.INT, f"config_type of {each.name}")
            c.equal(each.documentation, None, f"documentation of {each.name}, which was not requested")
        c.true(each.synonyms, f"synonyms of {each.name}", expected="at least one", actual=each.synonyms)
        first = each.synonyms[0]
        c.equal((first.value, first.source), (each.value, each.config_source), f"first synonym of {each.name}")
        sources = [synonym.source for synonym in each.synonyms]
        c.equal(sources, sorted(set(sources)), f"sources of the synonyms of {each.name}, in order of precedence")
        names = [synonym.name for synonym in each.synonyms if synonym.source != k.DYNAMIC_TOPIC]
        c.equal(set(names), {of_broker}, f"synonyms of {each.name} on the broker (names)")
    c.equal(own.synonyms[0].name, "segment.bytes", "first synonym of segment.bytes (name)")
    c.true(
        k.DYNAMIC_TOPIC < inherited.config_source <= k.DEFAULT,
        "config_source of max.message.bytes",
        expected="2 to 5",
        actual=inherited.config_source,
    )


@case(
    "configs.describe.unknown-topic",
    "a topic that does not exist is rejected",
    source="KIP-133",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CONFIGS),
)
def unknown_topic(c: Check, version: int) -> None:
    """Sends: DescribeConfigs of a topic that does not exist.

    Expects: UNKNOWN_TOPIC_OR_PARTITION, the type and name of the resource, and no configs.

    Why: without the error, a tool would show the defaults as the configs of a topic with a misspelled name.
    """
    result = k.describe(c, k.Resource(k.TOPIC, c.name("no-such-topic")), version=version)
    c.error(result.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    c.equal(result.configs, [], "configs")


@case(
    "configs.describe.no-synonyms",
    "synonyms are returned on request only",
    source="KIP-226",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CONFIGS),
)
def no_synonyms(c: Check, version: int) -> None:
    """Sends: DescribeConfigs of a topic without `include_synonyms`.

    Expects: all configs with an empty list of synonyms each, among them the one that is set for the topic.

    Why: clients that do not request synonyms ignore them; they would be most of the response.
    """
    resource = new_topic(c, retention_ms="777")
    result = k.describe(c, resource, version=version, synonyms=False)
    c.error(result.error_code, ErrorCode.NONE)
    c.equal({each.name: each.synonyms for each in result.configs if each.synonyms}, {}, "synonyms")
    of_topic = {each.name: each.value for each in result.configs if each.config_source == k.DYNAMIC_TOPIC}
    c.equal(of_topic, {"retention.ms": "777"}, "configs with the source of the topic")


@case(
    "configs.describe.documentation",
    "documentation is returned on request",
    source="KIP-569",
    layer=Layer.WIRE,
    level=Level.SHOULD,
    versions=versions_of(ApiKey.DESCRIBE_CONFIGS, 3),
)
def documentation(c: Check, version: int) -> None:
    """Sends: DescribeConfigs of all configs of a topic, with `include_documentation`.

    Expects: a text for each config.

    Why: user interfaces show it next to the value, because the client does not know the configs of newer servers.
    """
    result = k.describe(c, new_topic(c), version=version, documentation=True)
    c.error(result.error_code, ErrorCode.NONE)
    c.true(len(result.configs) > 20, "configs (number)", expected="all configs", actual=len(result.configs))
    c.equal([each.name for each in result.configs if not each.documentation], [], "configs without documentation")


@case(
    "configs.describe.keys",
    "the keys of the request are the configs of the response",
    source="KIP-133",
    needs=DESCRIBE,
    variants={
        "one": (["retention.ms"], ["retention.ms"]),
        "unknown": (["no.such.config"], []),
        "unknown-and-known": (["no.such.config", "retention.ms"], ["retention.ms"]),
        "twice": (["retention.ms", "retention.ms"], ["retention.ms"]),
        "of-broker": (["log.retention.ms"], []),
        "case": (["Retention.ms"], []),
    },
)
def keys(c: Check, requested: list[str], expected: list[str]) -> None:
    """Sends: DescribeConfigs of a topic with keys that do not exist, or occur twice, together with one that exists.

    Expects: each key that exists once, no config for the others, and no error.

    Why: a tool asks newer and older servers for the same keys.
    """
    result = k.describe(c, new_topic(c, retention_ms="777"), requested)
    c.error(result.error_code, ErrorCode.NONE)
    c.equal([each.name for each in result.configs], expected, "configs (names)")


@case(
    "configs.describe.all-keys",
    "no keys stand for all keys",
    source="KIP-133",
    needs=DESCRIBE,
    variants={"null": (None,), "empty": ([],)},
)
def all_keys(c: Check, requested: list[str] | None) -> None:
    """Sends: DescribeConfigs of a topic whose list of keys is null or empty.

    Expects: all configs of a topic, each once, with the value and source of the one that is set.

    Why: tools list the configs of a topic without knowing their names.
    """
    result = k.describe(c, new_topic(c, cleanup_policy="compact"), requested)
    c.error(result.error_code, ErrorCode.NONE)
    names = [each.name for each in result.configs]
    c.equal(len(names), len(set(names)), "configs (number of different names)")
    c.equal(sorted(set(TYPES) - set(names)), [], "missing configs")
    found = {each.name: (each.value, each.config_source) for each in result.configs}
    c.equal(found["cleanup.policy"], ("compact", k.DYNAMIC_TOPIC), "cleanup.policy (value, config_source)")


TYPES = {
    "cleanup.policy": k.LIST,
    "compression.type": k.STRING,
    "delete.retention.ms": k.LONG,
    "file.delete.delay.ms": k.LONG,
    "flush.messages": k.LONG,
    "flush.ms": k.LONG,
    "follower.replication.throttled.replicas": k.LIST,
    "index.interval.bytes": k.INT,
    "leader.replication.throttled.replicas": k.LIST,
    "max.compaction.lag.ms": k.LONG,
    "max.message.bytes": k.INT,
    "message.timestamp.type": k.STRING,
    "min.cleanable.dirty.ratio": k.DOUBLE,
    "min.compaction.lag.ms": k.LONG,
    "min.insync.replicas": k.INT,
    "preallocate": k.BOOLEAN,
    "retention.bytes": k.LONG,
    "retention.ms": k.LONG,
    "segment.bytes": k.INT,
    "segment.index.bytes": k.INT,
    "segment.jitter.ms": k.LONG,
    "segment.ms": k.LONG,
    "unclean.leader.election.enable": k.BOOLEAN,
}


@case(
    "configs.describe.types",
    "configs of topics have their types",
    source="KIP-569",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CONFIGS, 3),
)
def types(c: Check, version: int) -> None:
    """Sends: DescribeConfigs of 23 configs of a topic that all releases since 3.0 have.

    Expects: all of them, with the type that Apache Kafka gives them, neither read-only nor sensitive.

    Why: tools convert and check values by these types; APPEND and SUBTRACT are possible for lists only.
    """
    result = k.describe(c, new_topic(c), list(TYPES), version=version)
    c.error(result.error_code, ErrorCode.NONE)
    c.equal({each.name: each.config_type for each in result.configs}, TYPES, "configs (name and config_type)")
    c.equal({(each.read_only, each.is_sensitive) for each in result.configs}, {(False, False)}, "configs (flags)")


@case(
    "configs.describe.several",
    "each resource of a request has its own result",
    source="KIP-133",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.DESCRIBE_CONFIGS),
)
def several(c: Check, version: int) -> None:
    """Sends: DescribeConfigs of a topic, of one that does not exist, of a second topic with other keys, and of the
    broker.

    Expects: one result for each, with its own error code and configs.

    Why: tools describe many topics with one request, and some may be deleted in between.
    """
    first, second = new_topic(c, retention_ms="1"), new_topic(c, retention_ms="2")
    unknown = k.Resource(k.TOPIC, c.name("no-such-topic"))
    broker = k.this_broker(c)
    wanted: dict[k.Resource, list[str]] = {
        first: ["retention.ms"],
        unknown: ["retention.ms"],
        second: ["retention.ms", "segment.bytes"],
        broker: ["log.retention.bytes"],
    }
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=each.type, resource_name=each.name, configuration_keys=keys)
            for each, keys in wanted.items()
        ]
    )
    results = c.call(request, version).results
    found = {(each.resource_type, each.resource_name): each for each in results}
    c.equal((sorted(found), len(results)), (sorted(tuple(each) for each in wanted), 4), "results (resources, number)")
    for each, keys in wanted.items():
        result = found[each]
        if each == unknown:
            c.error(result.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_code of the unknown topic")
            continue
        c.error(result.error_code, ErrorCode.NONE, f"error_code of {each.name}")
        c.equal(sorted(config.name for config in result.configs), keys, f"configs of {each.name} (names)")
    for each, value in ((first, "1"), (second, "2")):
        values = {config.name: config.value for config in found[each].configs}
        c.equal(values["retention.ms"], value, f"retention.ms of {each.name}")


@case(
    "configs.describe.topic-name",
    "a name that no topic can have is rejected",
    source="KIP-133",
    needs=DESCRIBE,
    variants={"empty": ("",), "space": ("not a name",), "too-long": ("n" * 250,)},
)
def topic_name(c: Check, name: str) -> None:
    """Sends: DescribeConfigs of a topic with an invalid name.

    Expects: INVALID_TOPIC_EXCEPTION with a message, and no configs.

    Why: the client does not retry after this error, as it does for a topic that is not known yet.
    """
    result = k.describe(c, k.Resource(k.TOPIC, name))
    c.error(result.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    c.equal(result.configs, [], "configs")


@case(
    "configs.describe.resource-type",
    "types of resources that have no configs are rejected",
    source="KIP-133",
    needs=DESCRIBE,
    variants={str(number): (number,) for number in (0, 1, 3, 5, 33, 64, 127)},
)
def resource_type(c: Check, number: int) -> None:
    """Sends: DescribeConfigs of resources with a type that does not exist, and with different names.

    Expects: INVALID_REQUEST with a message, the type and name of the request, and no configs.

    Why: the server may be older than the client, which must learn that the server does not know the type.
    """
    for name in ("", str(c.target.node_id), "x"):
        result = k.describe(c, k.Resource(number, name))
        c.error(result.error_code, ErrorCode.INVALID_REQUEST, f"error_code of type {number} and name {name!r}")
        c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
        c.equal(result.configs, [], "configs")
