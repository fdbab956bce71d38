"""Real clients administer topics, configs and groups."""

from __future__ import annotations

from ...protocol.api import ApiKey
from ...protocol.errors import ErrorCode
from ...testing.clients import CLIENT_NAMES
from ...testing.group_requests import assignment, subscription
from .. import configs
from ..case import Layer, case, needs
from ..check import Check
from ..classic_group import ClassicGroup, Member
from ..client_jobs import ClientJobs
from .clients_records import SECONDS, without

TOPICS = needs(
    ApiKey.METADATA, 5, ApiKey.CREATE_TOPICS, 2, ApiKey.DELETE_TOPICS, 1, ApiKey.CREATE_PARTITIONS, 0
)  # fmt: skip
DESCRIBE_CONFIGS = needs(ApiKey.CREATE_TOPICS, 2, ApiKey.DESCRIBE_CONFIGS, 1)
GROUPS = needs(
    ApiKey.FIND_COORDINATOR, 1, ApiKey.JOIN_GROUP, 5, ApiKey.SYNC_GROUP, 3, ApiKey.LEAVE_GROUP, 1,
    ApiKey.LIST_GROUPS, 0, ApiKey.DESCRIBE_GROUPS, 0, ApiKey.OFFSET_COMMIT, 2,
)  # fmt: skip


@case(
    "clients.metadata",
    "a client sees the topics and their partitions",
    source="Protocol: Metadata",
    layer=Layer.CLIENTS,
    needs=needs(ApiKey.METADATA, 5),
    clients=CLIENT_NAMES,
    seconds=SECONDS,
)
def metadata(c: Check, client: str) -> None:
    """Sends: the client lists all topics; two new ones have one and three partitions.

    Expects: both with their numbers of partitions.

    Why: a client sends nothing to partitions that it does not see.
    """
    one, three, jobs = c.topic(), c.topic(3), ClientJobs(c, client)
    found = jobs.do("list_topics")["topics"]
    c.equal(
        [found.get(one.name), found.get(three.name)], [1, 3], f"{jobs.call_of('list_topics')}: numbers of partitions"
    )


@case(
    "clients.topics",
    "a client creates, extends and deletes a topic",
    source="KIP-4, KIP-195",
    layer=Layer.CLIENTS,
    needs=TOPICS,
    clients=without("kcat"),
    seconds=SECONDS,
)
def topics(c: Check, client: str) -> None:
    """Sends: the client creates a topic with two partitions, creates it again, increases it to five partitions, to the
    same number and to fewer, deletes it, and deletes it again.

    Expects: TOPIC_ALREADY_EXISTS for the second creation, INVALID_PARTITIONS for what is not an increase,
    UNKNOWN_TOPIC_OR_PARTITION for the second deletion, and no other errors; Metadata shows each change.

    Why: tools and frameworks create topics at their start, and depend on the error for those that exist.
    """
    topic, jobs = c.topic_name(), ClientJobs(c, client)

    def partitions() -> int | None:
        found: int | None = jobs.do("list_topics")["topics"].get(topic)
        return found

    jobs.do("create_topic", topic=topic, partitions=2)
    c.topic_ready(topic, 2)
    c.equal(partitions(), 2, f"{jobs.call_of('list_topics')}: the number of partitions")
    jobs.expect_error("create_topic", "TOPIC_ALREADY_EXISTS", "for a topic that exists", topic=topic, partitions=2)
    jobs.do("create_partitions", topic=topic, total=5)
    c.topic_ready(topic, 5)
    c.equal(partitions(), 5, f"{jobs.call_of('list_topics')}: the number of partitions")
    jobs.expect_error("create_partitions", "INVALID_PARTITIONS", "with the same number", topic=topic, total=5)
    jobs.expect_error("create_partitions", "INVALID_PARTITIONS", "with a smaller number", topic=topic, total=3)
    jobs.do("delete_topic", topic=topic)
    c.until(lambda: partitions() is None, f"that {jobs.call_of('list_topics')} no longer shows the topic")
    jobs.expect_error("delete_topic", "UNKNOWN_TOPIC_OR_PARTITION", "for a missing topic", topic=topic)


@case(
    "clients.configs",
    "a client changes one config of a topic",
    source="KIP-133, KIP-339",
    layer=Layer.CLIENTS,
    needs=(*DESCRIBE_CONFIGS, *needs(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0)),
    clients=without("kcat", "aiokafka"),
    seconds=SECONDS,
)
def altered_configs(c: Check, client: str) -> None:
    """Sends: the client creates a topic with `retention.ms` and `cleanup.policy`, describes its configs, changes
    `max.message.bytes`, and sets `retention.ms` to a word.

    Expects: the configs of the topic and defaults of others; the new value, with the first two unchanged;
    INVALID_CONFIG.

    Why: tools that manage topics compare and change configs one by one.
    """
    jobs = _created_with_configs(c, client)
    topic = jobs.topic
    jobs.jobs.do("set_topic_config", topic=topic, key="max.message.bytes", value="20000")
    changed = jobs.wait_for("max.message.bytes", "20000")
    what = f"{jobs.jobs.call_of('topic_configs')}: retention.ms and cleanup.policy after the change"
    c.equal((changed.get("retention.ms"), changed.get("cleanup.policy")), ("1234567", "compact"), what)
    invalid = {"key": "retention.ms", "value": "soon"}
    jobs.jobs.expect_error("set_topic_config", "INVALID_CONFIG", "with an invalid value", topic=topic, **invalid)


@case(
    "clients.replaced-configs",
    "a client replaces all configs of a topic",
    source="KIP-133",
    layer=Layer.CLIENTS,
    needs=(*DESCRIBE_CONFIGS, *needs(ApiKey.ALTER_CONFIGS, 0)),
    clients=("aiokafka",),
    seconds=SECONDS,
)
def replaced_configs(c: Check, client: str) -> None:
    """Sends: the client creates a topic with `retention.ms` and `cleanup.policy`, describes its configs, and sets only
    `max.message.bytes` with AlterConfigs.

    Expects: the configs of the topic and defaults of others; then the new value, and the defaults of the first two.

    Why: this client has no IncrementalAlterConfigs.
    """
    jobs = _created_with_configs(c, client)
    jobs.jobs.do("set_topic_config", topic=jobs.topic, key="max.message.bytes", value="20000")
    changed = jobs.wait_for("max.message.bytes", "20000")
    c.equal(changed.get("cleanup.policy"), "delete", f"{jobs.jobs.call_of('topic_configs')}: cleanup.policy")


class _Configured:
    """A topic that the client has created with configs."""

    def __init__(self, c: Check, jobs: ClientJobs, topic: str) -> None:
        self.c = c
        self.jobs = jobs
        self.topic = topic

    def configs(self) -> dict[str, str | None]:
        found: dict[str, str | None] = self.jobs.do("topic_configs", topic=self.topic)["configs"]
        return found

    def wait_for(self, key: str, value: str) -> dict[str, str | None]:
        """The configs, when one of them has a value: other brokers may learn it later."""
        found: dict[str, str | None] = {}

        def has_value() -> bool:
            nonlocal found
            found = self.configs()
            return found.get(key) == value

        self.c.until(has_value, f"{key}={value} in {self.jobs.call_of('topic_configs')}")
        return found


def _created_with_configs(c: Check, client: str) -> _Configured:
    created = _Configured(c, ClientJobs(c, client), c.topic_name())
    wanted = {"retention.ms": "1234567", "cleanup.policy": "compact"}
    created.jobs.do("create_topic", topic=created.topic, partitions=1, configs=wanted)
    c.topic_ready(created.topic)
    found = created.configs()
    keys = (*wanted, "message.timestamp.type")
    c.equal(
        {key: found.get(key) for key in keys},
        {**wanted, "message.timestamp.type": "CreateTime"},
        f"{created.jobs.call_of('topic_configs')}: configs",
    )
    with c.setup("describing the configs without the client"):
        described = configs.describe(c, configs.Resource(configs.TOPIC, created.topic), list(wanted))
    stored = {each.name: each.value for each in described.configs}
    c.equal(stored, wanted, f"configs that {client} sent, as DescribeConfigs returns them")
    return created


def _with_member(c: Check, group: ClassicGroup) -> Member:
    """A member of a group that also exists without it, whose assignment clients can decode."""
    topic = c.topic()
    group.keep()
    member = group.member(protocols={"range": subscription(topic.name)})
    with c.setup("a group with a member"):
        c.error(member.join().error_code, ErrorCode.NONE, "JoinGroup error_code")
        member.start_sync({member.member_id: assignment({topic.name: [0]})})
        c.error(member.synced().error_code, ErrorCode.NONE, "SyncGroup error_code")
    return member


def _leave(c: Check, group: ClassicGroup, member: Member) -> None:
    """The group has no members after it."""
    with c.setup("leaving the group"):
        member.leave()
        group.wait_for_state("Empty")


@case(
    "clients.describe-group",
    "a client lists and describes a group",
    source="Protocol: DescribeGroups",
    layer=Layer.CLIENTS,
    needs=GROUPS,
    clients=without("kcat"),
    seconds=SECONDS,
)
def described_group(c: Check, client: str) -> None:
    """Sends: the client lists all groups, and describes one that has a member, which then leaves.

    Expects: the group in the list; Stable with one member, then Empty without members.

    Why: tools show the state of groups, and wait for it.
    """
    group, jobs = ClassicGroup(c), ClientJobs(c, client)
    member = _with_member(c, group)
    listed = jobs.do("list_groups")["groups"]
    c.true(group.id in listed, f"{jobs.call_of('list_groups')}: groups", expected=f"also {group.id}", actual=listed)

    def description() -> tuple[str, int]:
        found = jobs.do("describe_group", group=group.id)
        return found["state"], found["members"]

    c.equal(description(), ("Stable", 1), f"{jobs.call_of('describe_group')}: state and members")
    _leave(c, group, member)
    c.equal(description(), ("Empty", 0), f"{jobs.call_of('describe_group')} after the member left: state and members")


@case(
    "clients.delete-group",
    "a client deletes a group, but not while it has members",
    source="KIP-229",
    layer=Layer.CLIENTS,
    needs=(*GROUPS, *needs(ApiKey.DELETE_GROUPS, 0)),
    clients=without("kcat", "aiokafka"),
    seconds=SECONDS,
)
def deleted_group(c: Check, client: str) -> None:
    """Sends: the client deletes a group with a member, deletes it again when the member has left, and once more.

    Expects: NON_EMPTY_GROUP, no error, and GROUP_ID_NOT_FOUND.

    Why: a group in use keeps its offsets.
    """
    group, jobs = ClassicGroup(c), ClientJobs(c, client)
    member = _with_member(c, group)
    jobs.expect_error("delete_group", "NON_EMPTY_GROUP", "with a member", group=group.id)
    _leave(c, group, member)
    jobs.do("delete_group", group=group.id)
    jobs.expect_error("delete_group", "GROUP_ID_NOT_FOUND", "for a missing group", group=group.id)
