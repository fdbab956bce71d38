"""CreateTopics: partitions, assignments, configs, dry runs, and topics that are rejected."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.uuid import ZERO_UUID
from .. import configs
from .. import topic_admin as t
from ..case import Layer, Level, case, needs, versions_of
from ..check import Check

CREATE = needs(ApiKey.CREATE_TOPICS, 7)


@case(
    "topics.create.exchange",
    "topics are created with a number of partitions or with an assignment",
    source="Protocol: CreateTopics, KIP-525 and KIP-516",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_TOPICS),
)
def exchange(c: Check, version: int) -> None:
    """Sends: CreateTopics with a topic of three partitions, and one with an assignment of two partitions and a config.

    Expects: no error and no message for both; since version 5 the numbers of partitions and replicas and the configs
    with their sources; since version 7 the topic ID, which Metadata also returns.

    Why: tools show these fields to their users instead of sending Metadata and DescribeConfigs afterwards.
    """
    counted, assigned = c.topic_name("counted"), c.topic_name("assigned")
    node = c.target.node_id
    results = t.create(
        c,
        t.creatable(counted, 3),
        t.creatable(assigned, -1, -1, assignments={0: [node], 1: [node]}, configs={"retention.ms": "123456"}),
        version=version,
    )
    for name, partitions, retention in ((counted, 3, None), (assigned, 2, ("123456", configs.DYNAMIC_TOPIC))):
        result = results[name]
        c.error(result.error_code, ErrorCode.NONE, f"error_code of {name}")
        c.true(not result.error_message, f"error_message of {name}", expected="none", actual=result.error_message)
        topic = c.topic_ready(name, partitions)
        if version >= 7:
            c.equal(result.topic_id, topic.topic_id, f"topic_id of {name}")
        if version >= 5:
            c.equal(result.num_partitions, partitions, f"num_partitions of {name}")
            c.equal(result.replication_factor, 1, f"replication_factor of {name}")
            c.error(result.topic_config_error_code, ErrorCode.NONE, f"topic_config_error_code of {name}")
            shown = {each.name: (each.value, each.config_source) for each in result.configs}
            if retention:
                c.equal(shown.get("retention.ms"), retention, f"retention.ms of {name} (value and source)")
            c.true(
                len(shown) > 20, f"configs of {name} (number)", expected="all configs of the topic", actual=len(shown)
            )
    c.equal(t.shape(c, assigned), [(index, node, [node], [node]) for index in (0, 1)], "the assigned partitions")


@case(
    "topics.create.configs",
    "the response has the configs that DescribeConfigs returns",
    source="KIP-525",
    needs=(*CREATE, *needs(ApiKey.DESCRIBE_CONFIGS, 4)),
)
def returned_configs(c: Check) -> None:
    """Sends: CreateTopics with two configs; then DescribeConfigs of the topic.

    Expects: the same names, values, sources and flags in both responses. The sources of configs that a broker may set
    in hours are not compared.

    Why: a tool that creates a topic shows its effective configs, including those that it did not set.
    """
    name = c.topic_name()
    wanted = t.creatable(name, configs={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    result = t.create(c, wanted)[name]
    c.error(result.error_code, ErrorCode.NONE)
    c.topic_ready(name)
    shown = {each.name: (each.value, each.config_source, each.read_only, each.is_sensitive) for each in result.configs}
    c.equal(len(shown), len(result.configs), "configs (number of different names)")
    c.equal(shown.get("cleanup.policy"), ("compact", configs.DYNAMIC_TOPIC, False, False), "cleanup.policy")
    c.equal(shown.get("segment.bytes"), ("1048576", configs.DYNAMIC_TOPIC, False, False), "segment.bytes")
    described = configs.describe(c, configs.Resource(configs.TOPIC, name))
    expected = {
        each.name: (each.value, each.config_source, each.read_only, each.is_sensitive) for each in described.configs
    }
    c.equal(sorted(shown), sorted(expected), "configs (names)")
    for key, (value, source, *flags) in expected.items():
        found_value, found_source, *found_flags = shown[key]
        c.equal((found_value, *found_flags), (value, *flags), f"configs[{key}] (value, read_only, is_sensitive)")
        if key not in _SET_IN_OTHER_UNITS:
            c.equal(found_source, source, f"configs[{key}].config_source")


_SET_IN_OTHER_UNITS = {"retention.ms", "segment.ms", "segment.jitter.ms"}
"""If a broker sets them in hours or minutes, DescribeConfigs of Apache Kafka returns the source of the default."""


@case(
    "topics.create.existing",
    "a topic that exists is not created again",
    source="Protocol: CreateTopics",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_TOPICS),
)
def existing(c: Check, version: int) -> None:
    """Sends: CreateTopics with a topic that exists, with more partitions, and with one that does not.

    Expects: TOPIC_ALREADY_EXISTS with a message for the first, which is unchanged; the other one is created.

    Why: programs create their topics at each start, and rely on this error if they exist.
    """
    topic = c.topic(2)
    other = c.topic_name("other")
    results = t.create(c, t.creatable(topic.name, 5), t.creatable(other), version=version)
    rejected = results[topic.name]
    c.error(rejected.error_code, ErrorCode.TOPIC_ALREADY_EXISTS, f"error_code of {topic.name}")
    c.true(rejected.error_message, "error_message", expected="a message", actual=rejected.error_message)
    if version >= 7:
        c.equal(rejected.topic_id, ZERO_UUID, "topic_id of the rejected topic")
    if version >= 5:
        c.equal(rejected.num_partitions, -1, "num_partitions of the rejected topic")
        c.equal(rejected.replication_factor, -1, "replication_factor of the rejected topic")
    c.error(results[other].error_code, ErrorCode.NONE, f"error_code of {other}")
    c.topic_ready(other)
    c.equal(len(t.shape(c, topic.name)), 2, "partitions of the existing topic")
    c.equal(t.metadata_of(c, topic.name).topic_id, topic.topic_id, "topic_id of the existing topic")


@case(
    "topics.create.validate-only",
    "a dry run creates nothing",
    source="Protocol: CreateTopics",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_TOPICS),
)
def validate_only(c: Check, version: int) -> None:
    """Sends: CreateTopics with `validate_only` for a new topic of four partitions, and for one that exists.

    Expects: no error and, since version 5, four partitions and one replica; TOPIC_ALREADY_EXISTS for the other.
    Metadata does not have the new topic, and CreateTopics without `validate_only` creates it.

    Why: a tool previews a change; a topic that already exists after the preview makes the change itself fail.
    """
    topic = c.topic()
    name = c.topic_name("dry")
    results = t.create(c, t.creatable(name, 4), t.creatable(topic.name), version=version, validate_only=True)
    c.error(results[name].error_code, ErrorCode.NONE, f"error_code of {name}")
    c.error(results[topic.name].error_code, ErrorCode.TOPIC_ALREADY_EXISTS, f"error_code of {topic.name}")
    if version >= 5:
        c.equal(results[name].num_partitions, 4, "num_partitions")
        c.equal(results[name].replication_factor, 1, "replication_factor")
    t.missing(c, name)
    result = t.create(c, t.creatable(name, 1), version=version)[name]
    c.error(result.error_code, ErrorCode.NONE, "error_code of the second CreateTopics")
    c.topic_ready(name, 1)


@case(
    "topics.create.defaults",
    "-1 stands for the default number of partitions and replicas",
    source="KIP-464",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_TOPICS, 4),
)
def defaults(c: Check, version: int) -> None:
    """Sends: CreateTopics with -1 partitions and replication factor -1.

    Expects: no error; the topic has as many partitions as the response says since version 5, and at least one.

    Why: tools create topics without these numbers and leave them to the settings of the cluster.
    """
    name = c.topic_name()
    result = t.create(c, t.creatable(name, -1, -1), version=version)[name]
    c.error(result.error_code, ErrorCode.NONE)
    found = c.until(lambda: t.metadata_of(c, name).partitions, "partitions of the topic in Metadata")
    if version >= 5:
        c.equal(result.num_partitions, len(found), "num_partitions, compared with Metadata")
        factors = {len(each.replica_nodes) for each in found}
        c.equal(factors, {result.replication_factor}, "replicas of the partitions, compared with replication_factor")


@case(
    "topics.create.name",
    "names that a topic cannot have are rejected",
    source="Protocol: CreateTopics",
    needs=CREATE,
    variants={
        "empty": ("",),
        "dot": (".",),
        "dots": ("..",),
        "space": ("a b",),
        "slash": ("a/b",),
        "colon": ("a:b",),
        "not-ascii": ("caf\u00e9",),
        "newline": ("a\nb",),
        "too-long": ("n" * 250,),
    },
)
def invalid_name(c: Check, name: str) -> None:
    """Sends: CreateTopics with a name that is empty, too long, or not of ASCII letters, digits, dots, _ and - only.

    Expects: INVALID_TOPIC_EXCEPTION, a message, the topic ID of zeros; another topic of the request is created.

    Why: names become names of directories and of metrics; an invalid one cannot be removed by tools.
    """
    other = c.topic_name()
    results = t.create(c, t.creatable(name), t.creatable(other))
    c.error(results[name].error_code, ErrorCode.INVALID_TOPIC_EXCEPTION, "error_code of the invalid name")
    c.true(results[name].error_message, "error_message", expected="a message", actual=results[name].error_message)
    c.equal(results[name].topic_id, ZERO_UUID, "topic_id of the invalid name")
    c.error(results[other].error_code, ErrorCode.NONE, "error_code of the valid name")
    c.topic_ready(other)


@case(
    "topics.create.name.longest",
    "a name of 249 characters is allowed",
    source="Protocol: CreateTopics",
    needs=CREATE,
)
def longest_name(c: Check) -> None:
    """Sends: CreateTopics with a name of 249 characters, of all kinds that are allowed.

    Expects: no error, and Metadata with the same name.

    Why: directories of partitions have names of up to 255 characters, five of which belong to the partition.
    """
    name = c.topic_name("A.z_0").ljust(249, "x")
    result = t.create(c, t.creatable(name))[name]
    c.error(result.error_code, ErrorCode.NONE)
    try:
        c.topic_ready(name)
    finally:
        t.delete(c, name)


@case(
    "topics.create.name.collision",
    "names that differ only in . and _ collide",
    source="Protocol: CreateTopics",
    needs=CREATE,
    level=Level.SHOULD,
)
def name_collision(c: Check) -> None:
    """Sends: CreateTopics with a name that has a dot where the name of an existing topic has an underscore.

    Expects: INVALID_TOPIC_EXCEPTION, and no such topic.

    Why: metrics replace dots by underscores, so that the metrics of both topics would be mixed.
    """
    stem = c.topic_name()
    name = f"{stem}_x"
    try:
        c.topic(name=name)
        result = t.create(c, t.creatable(f"{stem}.x"))[f"{stem}.x"]
        c.error(result.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)
        t.missing(c, f"{stem}.x")
    finally:
        t.delete(c, name, f"{stem}.x")


@case(
    "topics.create.shape",
    "numbers of partitions and replicas that are impossible are rejected",
    source="Protocol: CreateTopics",
    needs=CREATE,
    variants={
        "no-partitions": (0, 1, ErrorCode.INVALID_PARTITIONS),
        "negative-partitions": (-2, 1, ErrorCode.INVALID_PARTITIONS),
        "no-replicas": (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        "negative-replicas": (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        "too-many-replicas": (1, 32_767, ErrorCode.INVALID_REPLICATION_FACTOR),
    },
)
def invalid_shape(c: Check, partitions: int, factor: int, expected: ErrorCode) -> None:
    """Sends: CreateTopics with a number of partitions or replicas that is zero, below -1, or exceeds the brokers.

    Expects: INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR, also in a dry run; the topic does not exist afterwards.

    Why: a tool must not believe that its topic has replicas which it does not have.
    """
    name = c.topic_name()
    for dry in (True, False):
        result = t.create(c, t.creatable(name, partitions, factor), validate_only=dry)[name]
        c.error(result.error_code, expected, f"error_code with validate_only={dry}")
        c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
        c.equal(result.topic_id, ZERO_UUID, "topic_id")
    t.missing(c, name)


OWN = -1
"""Stands for the broker at the address in the assignments below."""


@case(
    "topics.create.assignment",
    "assignments that are impossible are rejected",
    source="Protocol: CreateTopics",
    needs=CREATE,
    variants={
        "with-partitions": (2, -1, {0: [OWN], 1: [OWN]}, ErrorCode.INVALID_REQUEST),
        "with-factor": (-1, 1, {0: [OWN], 1: [OWN]}, ErrorCode.INVALID_REQUEST),
        "gap": (-1, -1, {0: [OWN], 2: [OWN]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "not-from-0": (-1, -1, {1: [OWN]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "negative-partition": (-1, -1, {-1: [OWN], 0: [OWN]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "unknown-broker": (-1, -1, {0: [t.NO_BROKER]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "negative-broker": (-1, -1, {0: [-7]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "no-broker": (-1, -1, {0: []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "twice-a-broker": (-1, -1, {0: [OWN, OWN]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "different-sizes": (-1, -1, {0: [OWN], 1: [OWN, t.NO_BROKER]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    },
)
def invalid_assignment(
    c: Check, partitions: int, factor: int, assignments: Mapping[int, list[int]], expected: ErrorCode
) -> None:
    """Sends: CreateTopics with an assignment of partitions to brokers that contradicts itself or the cluster.

    Expects: INVALID_REQUEST if a number of partitions or replicas is given as well, otherwise
    INVALID_REPLICA_ASSIGNMENT; the topic does not exist afterwards.

    Why: tools that place replicas themselves rely on the server to detect mistakes before there are empty partitions.
    """
    name = c.topic_name()
    node = c.target.node_id
    placed = {index: [node if each == OWN else each for each in brokers] for index, brokers in assignments.items()}
    result = t.create(c, t.creatable(name, partitions, factor, assignments=placed))[name]
    c.error(result.error_code, expected)
    c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    t.missing(c, name)


@case(
    "topics.create.config",
    "configs that a topic cannot have are rejected",
    source="Protocol: CreateTopics",
    needs=CREATE,
    variants={
        "unknown": ({"no.such.config": "1"},),
        "not-a-number": ({"retention.ms": "soon"},),
        "too-small": ({"segment.bytes": "0"},),
        "too-large": ({"max.message.bytes": "2147483648"},),
        "not-a-choice": ({"compression.type": "rar"},),
        "not-in-the-list": ({"cleanup.policy": "compact,shred"},),
        "not-a-boolean": ({"preallocate": "yes"},),
        "not-a-ratio": ({"min.cleanable.dirty.ratio": "1.5"},),
        "contradiction": ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},),
        "null": ({"retention.ms": None},),
    },
)
def invalid_config(c: Check, values: Mapping[str, str | None]) -> None:
    """Sends: CreateTopics with a config that does not exist, or with a value that it cannot have.

    Expects: INVALID_CONFIG with a message, also in a dry run; the topic does not exist afterwards.

    Why: a misspelled config that is accepted means that records are deleted too early or never.
    """
    name = c.topic_name()
    for dry in (True, False):
        result = t.create(c, t.creatable(name, configs=values), validate_only=dry)[name]
        c.error(result.error_code, ErrorCode.INVALID_CONFIG, f"error_code with validate_only={dry}")
        c.true(result.error_message, "error_message", expected="a message", actual=result.error_message)
    t.missing(c, name)


@case(
    "topics.create.duplicate",
    "a topic that is named twice is rejected, and the others are created",
    source="Protocol: CreateTopics",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_TOPICS),
)
def duplicate(c: Check, version: int) -> None:
    """Sends: CreateTopics with one name twice, with different numbers of partitions, and another name.

    Expects: one result for each name: INVALID_REQUEST for the first, no error for the other; only that topic exists.

    Why: the server cannot know which of the two descriptions is meant.
    """
    name, other = c.topic_name("twice"), c.topic_name("once")
    results = t.create(c, t.creatable(name, 1), t.creatable(other), t.creatable(name, 2), version=version)
    c.error(results[name].error_code, ErrorCode.INVALID_REQUEST, "error_code of the name that occurs twice")
    c.error(results[other].error_code, ErrorCode.NONE, "error_code of the other name")
    c.topic_ready(other)
    t.missing(c, name)


@case(
    "topics.create.each-fails-alone",
    "each topic of a request succeeds or fails independently",
    source="Protocol: CreateTopics",
    needs=CREATE,
)
def each_fails_separately(c: Check) -> None:
    """Sends: CreateTopics with a good topic, one that exists, one with no partitions, one with an unknown config, and
    one with an invalid name.

    Expects: each name with its own error, and the good topic.

    Why: tools create many topics with one request, and report to their user which ones failed.
    """
    good, no_partitions, config = c.topic_name("good"), c.topic_name("empty"), c.topic_name("config")
    old = c.topic()
    results = t.create(
        c,
        t.creatable(no_partitions, 0),
        t.creatable(good, 2),
        t.creatable(old.name),
        t.creatable(config, configs={"no.such.config": "1"}),
        t.creatable("not a name!"),
    )
    expected = {
        good: ErrorCode.NONE,
        old.name: ErrorCode.TOPIC_ALREADY_EXISTS,
        no_partitions: ErrorCode.INVALID_PARTITIONS,
        config: ErrorCode.INVALID_CONFIG,
        "not a name!": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    for name, error in expected.items():
        c.error(results[name].error_code, error, f"error_code of {name}")
        c.equal(results[name].topic_id == ZERO_UUID, error != ErrorCode.NONE, f"whether topic_id of {name} is zero")
    c.topic_ready(good, 2)


@case(
    "topics.create.none",
    "a request without topics has an empty response",
    source="Protocol: CreateTopics",
    layer=Layer.WIRE,
    versions=versions_of(ApiKey.CREATE_TOPICS),
)
def no_topics(c: Check, version: int) -> None:
    """Sends: CreateTopics without topics.

    Expects: a response without topics.

    Why: a generic client serializes an empty list like any other, and waits for the response.
    """
    c.equal(t.create(c, version=version), {}, "topics")


@case(
    "topics.create.timeout",
    "a timeout that has already passed creates nothing",
    source="Protocol: CreateTopics",
    needs=CREATE,
    level=Level.APACHE,
    variants={"0": (0,), "minus-1": (-1,)},
)
def timeout(c: Check, timeout_ms: int) -> None:
    """Sends: CreateTopics with a `timeout_ms` that is not positive.

    Expects: REQUEST_TIMED_OUT for the topic, the topic ID of zeros, and no such topic.

    Why: an administrator who sees this error repeats the request, which must not fail because the topic exists.
    """
    name = c.topic_name()
    result = t.create(c, t.creatable(name), timeout_ms=timeout_ms)[name]
    c.error(result.error_code, ErrorCode.REQUEST_TIMED_OUT)
    c.equal(result.topic_id, ZERO_UUID, "topic_id")
    t.missing(c, name)
