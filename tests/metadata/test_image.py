"""The effect of each record on the image and its delta. No sequence of records can make a replay fail."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigResource, MetadataDelta, MetadataImage
from moldau.metadata.image_records import image_records
from moldau.metadata.outcome import Versioned
from moldau.metadata.records import (
    RECORD_TYPES,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from moldau.metadata.registrations import MIGRATING_DIRECTORY
from moldau.metadata.transactions import TransactionFilter

from .lookups import partition_of

ALPHA, BETA = b"\1" * 16, b"\2" * 16
DIRECTORY = b"\3" * 16


def replay(image: MetadataImage, *records: MetadataRecord) -> tuple[MetadataImage, Any]:
    return image.apply(records, end_offset=image.offset + 1 + len(records), epoch=1, timestamp_ms=7)


def partition(topic_id: bytes = ALPHA, index: int = 0, **changes: Any) -> PartitionRecord:
    fields: dict[str, Any] = {
        "replicas": [1],
        "isr": [1],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [DIRECTORY],
    }
    return PartitionRecord(topic_id=topic_id, partition_id=index, **(fields | changes))


def change(topic_id: bytes = ALPHA, index: int = 0, **changes: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=topic_id, partition_id=index, **changes)


@pytest.fixture
def image() -> MetadataImage:
    """An image with a topic `alpha` of two partitions."""
    return replay(MetadataImage(), TopicRecord(name="alpha", topic_id=ALPHA), partition(), partition(index=1))[0]


def test_a_topic_is_found_by_name_and_by_id(image: MetadataImage) -> None:
    assert image.topics_by_name["alpha"] is image.topics_by_id[ALPHA]
    assert set(image.topics_by_name["alpha"].partitions) == {0, 1}
    assert partition_of(image, "alpha", 1).leader == 1
    assert image.partition("alpha", 2) is None
    assert image.partition("beta", 0) is None
    assert (image.offset, image.epoch, image.timestamp_ms, image.record_count) == (2, 1, 7, 3)


def test_an_image_does_not_change_when_records_are_replayed_onto_it(image: MetadataImage) -> None:
    before = repr(image)
    after, _ = replay(
        image,
        change(leader=-1),
        partition(index=2),
        TopicRecord(name="a.b", topic_id=BETA),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="alpha", name="retention.ms", value="1"),
    )
    assert repr(image) == before
    assert partition_of(after, "alpha", 0).leader == -1
    after, _ = replay(after, RemoveTopicRecord(topic_id=ALPHA))
    assert repr(image) == before


def test_unchanged_parts_of_the_image_are_shared(image: MetadataImage) -> None:
    image, _ = replay(image, TopicRecord(name="beta", topic_id=BETA), partition(BETA))
    after, _ = replay(image, change(BETA, leader=-1))
    assert after.topics_by_name["alpha"] is image.topics_by_name["alpha"]
    assert after.configs is image.configs
    assert after.brokers is image.brokers


@pytest.mark.parametrize(
    ("changed", "leader", "leader_epoch"),
    [({"leader": 1}, 1, 1), ({"leader": -1}, -1, 1), ({"isr": [1]}, 1, 0), ({}, 1, 0)],
)
def test_every_named_leader_starts_a_leader_epoch(
    image: MetadataImage, changed: dict[str, Any], leader: int, leader_epoch: int
) -> None:
    image, _ = replay(image, change(**changed))
    found = partition_of(image, "alpha", 0)
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (leader, leader_epoch, 1)
    assert partition_of(image, "alpha", 1).partition_epoch == 0


def test_a_partition_change_replaces_the_fields_that_it_names(image: MetadataImage) -> None:
    image, _ = replay(
        image,
        change(
            replicas=[2, 1],
            isr=[2],
            removing_replicas=[1],
            adding_replicas=[2],
            directories=[DIRECTORY, DIRECTORY],
            eligible_leader_replicas=[1],
            last_known_elr=[1],
            leader_recovery_state=1,
        ),
    )
    found = partition_of(image, "alpha", 0)
    assert found.replicas == (2, 1)
    assert found.isr == (2,)
    assert (found.removing_replicas, found.adding_replicas) == ((1,), (2,))
    assert found.directories == (DIRECTORY, DIRECTORY)
    assert (found.elr, found.last_known_elr) == ((1,), (1,))
    assert found.leader_recovery_state == 1
    assert found.is_reassigning
    image, _ = replay(image, change(removing_replicas=[], adding_replicas=[]))
    assert partition_of(image, "alpha", 0).elr == (1,)
    assert not partition_of(image, "alpha", 0).is_reassigning


def test_partitions_without_directories_have_the_migrating_directory(image: MetadataImage) -> None:
    image, _ = replay(image, partition(index=2, directories=[], replicas=[1, 2]))
    assert partition_of(image, "alpha", 2).directories == (MIGRATING_DIRECTORY, MIGRATING_DIRECTORY)


def test_eligible_leader_replicas_are_cleared_for_one_topic_or_for_all(image: MetadataImage) -> None:
    eligible: dict[str, Any] = {"eligible_leader_replicas": [1], "last_known_elr": [1]}
    image, _ = replay(image, TopicRecord(name="beta", topic_id=BETA), partition(BETA, **eligible), change(**eligible))
    one, delta = replay(image, ClearElrRecord(topic_name="alpha"))
    assert partition_of(one, "alpha", 0).elr == ()
    assert partition_of(one, "beta", 0).elr == (1,)
    assert [change.topic for change in delta.partitions] == ["alpha"]
    everywhere, _ = replay(image, ClearElrRecord())
    assert partition_of(everywhere, "alpha", 0).last_known_elr == partition_of(everywhere, "beta", 0).elr == ()


def test_deleting_a_topic_removes_its_partitions_and_configs(image: MetadataImage) -> None:
    config = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="alpha", name="retention.ms", value="1")
    image, _ = replay(image, config)
    assert image.topic_configs("alpha") == {"retention.ms": "1"}
    after, delta = replay(image, RemoveTopicRecord(topic_id=ALPHA))
    assert not after.topics_by_name
    assert not after.topics_by_id
    assert not after.configs
    assert [topic.name for topic in delta.deleted_topics] == ["alpha"]
    assert [(c.partition, c.before is not None, c.after) for c in delta.partitions] == [
        (0, True, None),
        (1, True, None),
    ]
    assert not delta.configs


def test_a_recreated_topic_is_a_different_topic(image: MetadataImage) -> None:
    after, delta = replay(
        image, RemoveTopicRecord(topic_id=ALPHA), TopicRecord(name="alpha", topic_id=BETA), partition(BETA)
    )
    assert after.topics_by_name["alpha"].topic_id == BETA
    assert set(after.topics_by_id) == {BETA}
    assert [topic.topic_id for topic in delta.deleted_topics] == [ALPHA]
    assert [topic.topic_id for topic in delta.created_topics] == [BETA]
    assert [(c.topic_id, c.after is None) for c in delta.partitions] == [(ALPHA, True), (ALPHA, True), (BETA, False)]


def test_a_topic_that_is_created_and_deleted_in_one_delta_leaves_no_trace(image: MetadataImage) -> None:
    after, delta = replay(
        image,
        TopicRecord(name="a.b", topic_id=BETA),
        partition(BETA),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="a.b", name="retention.ms", value="1"),
        RemoveTopicRecord(topic_id=BETA),
    )
    assert delta == MetadataDelta(image, after)
    assert after._replace(offset=image.offset) == image


def test_a_delta_lists_new_and_changed_partitions(image: MetadataImage) -> None:
    _, delta = replay(image, partition(index=2), change(leader=1), change(index=1, isr=[1]))
    found = {c.partition: (c.before is None, c.after.leader_epoch) for c in delta.partitions}
    assert found == {0: (False, 1), 1: (False, 0), 2: (True, 0)}
    assert {c.topic for c in delta.partitions} == {"alpha"}
    assert not delta.created_topics


def test_colliding_topic_names_are_indexed_by_their_common_form(image: MetadataImage) -> None:
    image, _ = replay(image, TopicRecord(name="a.b", topic_id=BETA), TopicRecord(name="a_b", topic_id=DIRECTORY))
    assert image.colliding_topics == {"a_b": {"a.b", "a_b"}}
    image, _ = replay(image, RemoveTopicRecord(topic_id=BETA))
    assert image.colliding_topics == {"a_b": {"a_b"}}
    image, _ = replay(image, RemoveTopicRecord(topic_id=DIRECTORY))
    assert image.colliding_topics == {}


def test_configs_are_set_and_unset(image: MetadataImage) -> None:
    def config(name: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=name, value=value)

    image, delta = replay(image, config("a", "1"), config("b", "2"))
    assert image.config(BROKER_RESOURCE, "1") == {"a": "1", "b": "2"}
    assert delta.configs == {ConfigResource(BROKER_RESOURCE, "1")}
    image, _ = replay(image, config("a", None))
    assert image.config(BROKER_RESOURCE, "1") == {"b": "2"}
    image, _ = replay(image, config("b", None), config("c", None))
    assert image.configs == {}
    assert image.config(BROKER_RESOURCE, "1") == {}


def test_a_broker_is_registered_changed_and_unregistered() -> None:
    register = RegisterBrokerRecord(broker_id=1, broker_epoch=5, fenced=True, log_dirs=[BETA, ALPHA])
    image, delta = replay(MetadataImage(), register)
    assert image.brokers[1].directories == (ALPHA, BETA)
    assert not image.brokers[1].is_active
    assert delta.brokers == {1}
    image, _ = replay(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))
    assert image.brokers[1].is_active
    image, _ = replay(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, cordoned_log_dirs=[ALPHA]))
    assert image.brokers[1].cordoned_directories == (ALPHA,)
    image, _ = replay(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, log_dirs=[BETA]))
    assert image.brokers[1].directories == (BETA,)
    image, _ = replay(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1))
    assert not image.brokers[1].is_active
    image, _ = replay(image, FenceBrokerRecord(id=1, epoch=5))
    assert image.brokers[1].fenced
    image, _ = replay(image, UnfenceBrokerRecord(id=1, epoch=5))
    assert not image.brokers[1].fenced
    image, delta = replay(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=5))
    assert not image.brokers
    assert delta.brokers == {1}


def test_records_with_an_earlier_broker_epoch_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    image, _ = replay(MetadataImage(), RegisterBrokerRecord(broker_id=1, broker_epoch=5))
    after, delta = replay(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=4), FenceBrokerRecord(id=1, epoch=6))
    assert after.brokers == image.brokers
    assert delta == MetadataDelta(image, after)
    assert "UnregisterBrokerRecord" in caplog.text


def test_only_features_above_level_zero_are_kept() -> None:
    image, delta = replay(
        MetadataImage(),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="kraft.version", feature_level=1),
    )
    assert image.features == {"metadata.version": 30, "group.version": 1}
    assert image.metadata_version == 30
    assert delta.has_new_features
    image, delta = replay(image, FeatureLevelRecord(name="group.version", feature_level=0))
    assert image.features == {"metadata.version": 30}
    _, delta = replay(image, NoOpRecord())
    assert not delta.has_new_features


def test_quotas_credentials_tokens_and_access_control_are_kept() -> None:
    entity = [EntityData(entity_type="user", entity_name=None), EntityData(entity_type="client-id", entity_name="c")]
    image, _ = replay(
        MetadataImage(),
        ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=5.0),
        ClientQuotaRecord(entity=entity[::-1], key="consumer_byte_rate", value=6.0),
        AccessControlEntryRecord(id=ALPHA, principal="User:a"),
        UserScramCredentialRecord(name="u", mechanism=1, iterations=4096),
        DelegationTokenRecord(token_id="t", owner="User:a"),
        ProducerIdsRecord(next_producer_id=1000),
        RegisterControllerRecord(controller_id=1),
        ZkMigrationStateRecord(zk_migration_state=1),
    )
    assert list(image.client_quotas.values()) == [{"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0}]
    assert image.access_control_entries[ALPHA].principal == "User:a"
    assert image.scram_credentials["u", 1].iterations == 4096
    assert image.delegation_tokens["t"].owner == "User:a"
    assert image.producer_ids is not None
    assert image.producer_ids.next_producer_id == 1000
    assert image.controllers[1].id == 1
    assert image.zk_migration_state == 1
    image, _ = replay(
        image,
        ClientQuotaRecord(entity=entity, key="producer_byte_rate", remove=True),
        ClientQuotaRecord(entity=entity, key="consumer_byte_rate", remove=True),
        RemoveAccessControlEntryRecord(id=ALPHA),
        RemoveUserScramCredentialRecord(name="u", mechanism=1),
        RemoveDelegationTokenRecord(token_id="t"),
    )
    assert (image.client_quotas, image.access_control_entries, image.scram_credentials) == ({}, {}, {})
    assert image.delegation_tokens == {}


def test_records_of_a_metadata_transaction_take_effect_at_its_end() -> None:
    transactions = TransactionFilter()
    begin, end, abort = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()
    first, second = TopicRecord(name="a"), TopicRecord(name="b")
    assert list(transactions.feed([first, begin, second])) == [first]
    assert transactions.is_open
    assert list(transactions.feed([first, end, first])) == [second, first, first]
    assert not transactions.is_open
    assert list(transactions.feed([begin, second, abort, first, end])) == [first]
    assert not transactions.is_open


# Random records

SMALL_IDS = [ALPHA, BETA]


def record_of(cls: type[MetadataRecord], draw: random.Random) -> MetadataRecord:
    """A record with fields from few values, so that records refer to the same objects."""
    record = cls()
    names: tuple[str, ...] = cls.__slots__
    for field in names:
        value = getattr(record, field)
        if field in ("topic_id", "id") and isinstance(value, bytes):
            value = draw.choice(SMALL_IDS)
        elif field in ("directories", "log_dirs", "cordoned_log_dirs"):
            value = draw.choice([None, [], [DIRECTORY], [DIRECTORY, ALPHA]])
            value = [] if value is None and field == "log_dirs" else value
        elif field in ("replicas", "isr", "adding_replicas", "removing_replicas", "eligible_leader_replicas"):
            value = [draw.randint(0, 3) for _ in range(draw.randint(0, 3))]
        elif isinstance(value, bool):
            value = draw.random() < 0.5
        elif isinstance(value, int):
            value = draw.randint(-2, 3)
        elif isinstance(value, str) or (value is None and field in ("name", "value", "rack")):
            value = draw.choice(["", "alpha", "a.b", "a_b", "metadata.version"])
        if value is None and cls is PartitionRecord:
            value = []
        setattr(record, field, value)
    return record


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_no_sequence_of_records_makes_a_replay_fail(draw: random.Random, updates: int) -> None:
    kinds = list(RECORD_TYPES.values())
    busy: list[type[MetadataRecord]] = [
        TopicRecord,
        PartitionRecord,
        PartitionChangeRecord,
        RemoveTopicRecord,
        RegisterBrokerRecord,
        ClearElrRecord,
    ]
    image = MetadataImage()
    for _ in range(updates):
        records = [record_of(draw.choice(kinds + busy * 4), draw) for _ in range(draw.randint(0, 12))]
        image, delta = replay(image, *records)
        assert {topic.topic_id: topic for topic in image.topics_by_name.values()} == {
            topic_id: topic for topic_id, topic in image.topics_by_id.items() if topic in image.topics_by_name.values()
        }
        for changed in delta.partitions:
            if changed.after is not None:
                assert image.topics_by_id[changed.topic_id].partitions[changed.partition] == changed.after


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_records_of_an_image_reproduce_it(draw: random.Random) -> None:
    kinds = [kind for kind in RECORD_TYPES.values() if kind is not FeatureLevelRecord]
    records: list[MetadataRecord] = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
    records += [
        TopicRecord(name="alpha", topic_id=ALPHA),
        TopicRecord(name="a.b", topic_id=BETA),
        *(record_of(draw.choice(kinds), draw) for _ in range(25)),
    ]
    # A controller never creates two topics with one name, and a snapshot cannot represent them.
    records = records[:3] + [record for record in records[3:] if type(record) is not TopicRecord]
    image, _ = replay(MetadataImage(), *records)
    written: list[Versioned] = list(image_records(image))
    again, _ = image_of(written)
    assert again._replace(offset=image.offset, timestamp_ms=image.timestamp_ms) == image


def image_of(written: list[Versioned]) -> tuple[MetadataImage, Any]:
    from moldau.metadata.records import decode_record, encode_record

    return replay(MetadataImage(), *(decode_record(encode_record(record, version))[0] for record, version in written))
