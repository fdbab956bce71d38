"""The settings in effect for a broker: precedence, synonyms, listeners, and errors that prevent startup."""

import pytest

from moldau.config.broker import validate_dynamic_configs
from moldau.config.broker_config import BrokerConfig, Listener, StaticValue
from moldau.config.checks import check_broker_config, warnings
from moldau.config.definition import ConfigError, ConfigSource


def config_of(**settings: str) -> BrokerConfig:
    """``config_of(num_partitions="3")``: an underscore stands for a dot."""
    return BrokerConfig({name.replace("_", "."): StaticValue(text, "--set") for name, text in settings.items()})


_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_BROKER = {"process_roles": "broker", "controller_quorum_bootstrap_servers": "localhost:1"}
_CONTROLLER = {"process_roles": "controller", "listeners": "CONTROLLER://localhost:1"}


def refusal(**settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        check_broker_config(config_of(**settings))
    return str(refused.value)


def test_defaults_are_valid_and_cause_no_warnings() -> None:
    check_broker_config(BrokerConfig())
    assert warnings(BrokerConfig()) == []


def test_settings_of_unknown_listeners_and_misspelled_ones_of_listeners_cause_warnings() -> None:
    config = config_of(
        listeners="PUBLIC://127.0.0.1:9092",
        listener_security_protocol_map="PUBLIC:SSL,PARTNERS:SSL",
        listener_name_public_ssl_client_auth="required",
        listener_name_partners_ssl_client_auth="required",
        listener_name_controller_ssl_client_auth="required",
        listener_name_pubic_num_network_threads="1",
        listener_name_public_ssl_client_aut="required",
        controller_listener_names="CONTROLLER",
    )
    check_broker_config(config)
    assert warnings(config) == [
        "unknown settings, ignored: listener.name.public.ssl.client.aut",
        "settings of listeners that do not exist, ignored: listener.name.pubic.num.network.threads",
    ]


_PUBLIC = {"listeners": "PUBLIC://127.0.0.1:9092", "listener_security_protocol_map": "PUBLIC:SSL,SSL:SSL"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {**_PUBLIC, "listener_name_pubic_ssl_client_auth": "required"},
            "Invalid configuration listener.name.pubic.ssl.client.auth: there is no listener pubic, so it has no "
            "effect; the listeners are controller, plaintext, public, sasl_plaintext, sasl_ssl. If another node has "
            "it, add PUBIC to listener.security.protocol.map (from --set)",
        ),
        (
            {**_PUBLIC, "listener_name_ssl_ssl_client_auth": "required"},
            "there is no listener ssl, so it has no effect; the listeners are controller, plaintext, public, "
            "sasl_plaintext, sasl_ssl (from --set)",
        ),
        ({**_PUBLIC, "listener_name_pubic_plain_sasl_jaas_config": "x"}, "there is no listener pubic"),
        ({"listener_name_pubic_max_connections": "5"}, "there is no listener pubic"),
        ({**_CONTROLLER, "listener_name_controler_ssl_client_auth": "required"}, "there is no listener controler"),
    ],
)
def test_a_protecting_setting_of_a_listener_that_does_not_exist_prevents_startup(
    settings: dict[str, str], words: str
) -> None:
    assert words in refusal(**settings)


def test_nodes_may_share_settings_of_listeners_that_only_one_of_them_has() -> None:
    shared = {
        "listener_security_protocol_map": "CLIENTS:SSL,INTERNAL:SSL,CONTROLLER:SSL",
        **{f"listener_name_{name}_ssl_client_auth": "required" for name in ("clients", "internal", "controller")},
    }
    listeners = "CLIENTS://localhost:1,INTERNAL://localhost:2"
    check_broker_config(config_of(**_BROKER, **shared, listeners=listeners, inter_broker_listener_name="INTERNAL"))
    check_broker_config(config_of(**_CONTROLLER, **shared))
    of_brokers = {"inter_broker_listener_name": "INTERNAL", "listener_name_internal_ssl_client_auth": "required"}
    check_broker_config(config_of(**_CONTROLLER, **of_brokers, listener_name_ssl_ssl_client_auth="required"))


def test_a_dynamic_setting_makes_no_name_of_a_listener_unknown() -> None:
    names = {"listeners": "A://a:1,B://b:1", "listener_security_protocol_map": "A:SSL,B:SSL"}
    config = config_of(**names, listener_name_b_ssl_client_auth="required")
    without_b = {"listeners": "A://a:1", "listener.security.protocol.map": "A:SSL"}
    later = {"listener.name.c.ssl.keystore.location": "/c.pem"}  # of a listener that is added after it
    check_broker_config(config.with_dynamic(default={}, broker_specific={**without_b, **later}))


def test_value_has_the_type_of_its_setting() -> None:
    config = config_of(num_partitions="3", log_cleaner_min_cleanable_ratio="0.25", broker_rack="r")
    assert config.int("num.partitions") == 3
    assert config.float("log.cleaner.min.cleanable.ratio") == 0.25
    assert config.bool("auto.create.topics.enable") is True
    assert config.str("log.message.timestamp.type") == "CreateTime"
    assert config.optional_str("broker.rack") == "r"
    assert config.optional_str("replica.selector.class") is None
    assert config.optional_int("log.retention.ms") is None
    assert config.list("process.roles") == ("broker", "controller")


def test_unknown_name_is_an_error_in_the_code() -> None:
    with pytest.raises(KeyError):
        BrokerConfig().get("num.partition")


def test_dynamic_settings_win_and_those_of_the_broker_take_precedence() -> None:
    static = config_of(message_max_bytes="2000", log_retention_bytes="2000", num_network_threads="5")
    config = static.with_dynamic(
        default={"message.max.bytes": "3000", "log.retention.bytes": "3000"},
        broker_specific={"message.max.bytes": "4000"},
    )
    assert config.int("message.max.bytes") == 4000
    assert config.int("log.retention.bytes") == 3000
    assert config.int("num.network.threads") == 5
    assert config.origin("message.max.bytes") == "dynamic, this broker"
    assert config.origin("log.retention.bytes") == "dynamic, all brokers"
    assert static.int("message.max.bytes") == 2000


def test_invalid_dynamic_settings_are_ignored() -> None:
    config = config_of(num_partitions="2").with_dynamic(
        default={
            "num.partitions": "5",
            "message.max.bytes": "many",
            "sasl.jaas.config": "x",
            "listener.name.outside.ssl.protocol": "x",
            "listener.name.outside.max.connections": "many",
        },
        broker_specific={"ssl.keystore.type": "PEM"},
    )
    assert config.int("num.partitions") == 2
    assert config.int("message.max.bytes") == 1_048_588
    assert config.written(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG) == {}
    assert config.written(ConfigSource.DYNAMIC_BROKER_CONFIG) == {}


def test_dynamic_settings_of_unknown_names_and_of_listeners_are_kept() -> None:
    unknown, connections = {"of.another.version": "1"}, {"listener.name.outside.max.connections": "5"}
    config = config_of().with_dynamic(default=unknown, broker_specific=connections)
    assert config.written(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG) == unknown
    assert config.written(ConfigSource.DYNAMIC_BROKER_CONFIG) == connections


def test_a_dynamic_setting_of_a_listener_in_upper_case_is_refused() -> None:
    name = "listener.name.OUTSIDE.ssl.client.auth"
    with pytest.raises(ConfigError, match=f"names of listeners are in lower case in them: {name}"):
        validate_dynamic_configs({name: "required"}, per_broker=True)
    assert name not in config_of().with_dynamic(default={}, broker_specific={name: "required"}).written(
        ConfigSource.DYNAMIC_BROKER_CONFIG
    )


def test_written_values_are_returned_by_source() -> None:
    config = config_of(num_partitions=" 3").with_dynamic(
        default={"message.max.bytes": "3000"}, broker_specific={"message.max.bytes": "4000"}
    )
    assert config.written(ConfigSource.STATIC_BROKER_CONFIG) == {"num.partitions": " 3"}
    assert config.written(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG) == {"message.max.bytes": "3000"}
    assert config.written(ConfigSource.DYNAMIC_BROKER_CONFIG) == {"message.max.bytes": "4000"}
    defaults = config.written(ConfigSource.DEFAULT_CONFIG)
    assert defaults["log.retention.hours"] == "168"
    assert "log.retention.ms" not in defaults


@pytest.mark.parametrize("name", ["node_id", "broker_id"])
def test_node_and_broker_id_are_one(name: str) -> None:
    config = config_of(**{name: "7"})
    assert (config.node_id, config.int("broker.id")) == (7, 7)


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log_retention_hours": "1"}, 3_600_000),
        ({"log_retention_hours": "1", "log_retention_minutes": "1"}, 60_000),
        ({"log_retention_hours": "1", "log_retention_minutes": "1", "log_retention_ms": "1"}, 1),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_ms": "-5"}, -1),
    ],
)
def test_topic_default_comes_from_the_first_unit_that_is_set(settings: dict[str, str], retention_ms: int) -> None:
    assert config_of(**settings).topic_defaults()["retention.ms"] == retention_ms


def test_topic_defaults_come_from_the_broker() -> None:
    defaults = config_of(
        log_segment_bytes="2000000", log_roll_hours="2", log_flush_scheduler_interval_ms="9", message_max_bytes="77"
    ).topic_defaults()
    assert defaults["segment.bytes"] == 2_000_000
    assert defaults["segment.ms"] == 7_200_000
    assert defaults["flush.ms"] == 9
    assert defaults["max.message.bytes"] == 77
    assert defaults["remote.storage.enable"] is False


def test_listeners_are_parsed_with_their_protocols() -> None:
    config = config_of(
        listeners="PLAINTEXT://:9092,inside://[::1]:0, CONTROLLER://:9093",
        advertised_listeners="INSIDE://host:19092",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,Inside:plaintext,CONTROLLER:PLAINTEXT",
    )
    check_broker_config(config)
    assert config.listeners == (
        Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),
        Listener("INSIDE", "::1", 0, "PLAINTEXT"),
    )
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092", "INSIDE://[::1]:0"]
    assert config.advertised_listeners == {"INSIDE": Listener("INSIDE", "host", 19092, "PLAINTEXT")}


@pytest.mark.parametrize("port", ["9" * 5000, "65536", "-1", "", "²"])
def test_invalid_ports_are_rejected(port: str) -> None:
    with pytest.raises(ConfigError, match="the port from 0 to 65535"):
        _ = config_of(listeners=f"PLAINTEXT://localhost:{port}").listeners


def test_default_listener_is_on_the_local_machine() -> None:
    assert BrokerConfig().listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert BrokerConfig().advertised_listeners == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "127.0.0.1:9092"}, "a listener is written NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "a listener is written NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:70000"}, "a listener is written NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:-1"}, "a listener is written NAME://host:port"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "an IPv6 address is written in brackets"),
        ({"listeners": "INSIDE://h:9092"}, "listener.security.protocol.map has no protocol for INSIDE"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "names of the listeners must be unique"),
        (
            {
                "listeners": "PLAINTEXT://a:1,B://a:1",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "addresses of the listeners must be unique",
        ),
        (
            {"listeners": "X://a:1", "listener_security_protocol_map": "X:TLS"},
            "X has TLS, which is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            {"listeners": "CONTROLLER://a:1", "listener_security_protocol_map": "CONTROLLER:PLAINTEXT"},
            "there must be a listener for clients",
        ),
        ({"listener_security_protocol_map": "PLAINTEXT"}, "entries are written NAME:PROTOCOL"),
        (
            {"listeners": "A://a:1", "listener_security_protocol_map": "A:SSL,a:PLAINTEXT"},
            "A has two entries",
        ),
        (
            {"listeners": "SSL://a:1", "listener_name_SSL_ssl_client_auth": "required"},
            "names of listeners are in lower case in settings. Write listener.name.ssl.ssl.client.auth",
        ),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect to PLAINTEXT://0.0.0.0:1"),
        ({"advertised_listeners": "SSL://a:1"}, "there is no listener SSL"),
    ],
)
def test_invalid_listeners_prevent_startup(settings: dict[str, str], words: str) -> None:
    assert words in refusal(**settings)


def test_two_listeners_may_have_the_same_port_on_different_addresses() -> None:
    check_broker_config(
        config_of(
            listeners="PLAINTEXT://127.0.0.1:9092,B://10.0.0.1:9092",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
        )
    )


def test_every_invalid_value_is_reported_with_its_rule_and_origin() -> None:
    assert refusal(log_segment_bytes="1", num_partitions="x", queued_max_requests="5").splitlines() == [
        "Invalid value 1 for log.segment.bytes: expected a whole number from 1048576 to 2147483647 (from --set)",
        "Invalid value x for num.partitions: expected a whole number from 1 to 2147483647 (from --set)",
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"offsets_topic_compression_codec": "7"}, "between 0 and 4, the number of a codec"),
        ({"group_min_session_timeout_ms": "2000000"}, "no more than group.max.session.timeout.ms (1800000)"),
        (
            {"group_consumer_session_timeout_ms": "44999"},
            "Invalid value 44999 for configuration group.consumer.session.timeout.ms: Value must be between "
            "group.consumer.min.session.timeout.ms (45000) and group.consumer.max.session.timeout.ms (60000) "
            "(from --set)",
        ),
        ({"group_consumer_max_session_timeout_ms": "44000"}, "45000 for configuration group.consumer.session.timeout"),
        ({"group_consumer_heartbeat_interval_ms": "15001"}, "and group.consumer.max.heartbeat.interval.ms (15000)"),
        ({"group_consumer_assignment_interval_ms": "15001"}, "and group.consumer.max.assignment.interval.ms (15000)"),
        ({"group_consumer_min_assignment_interval_ms": "1001"}, "1000 for configuration group.consumer.assignment"),
        (
            {
                "group_consumer_heartbeat_interval_ms": "6000",
                "group_consumer_session_timeout_ms": "6000",
                "group_consumer_min_session_timeout_ms": "6000",
            },
            "Invalid value 6000 for configuration group.consumer.heartbeat.interval.ms: Value must be less than "
            "group.consumer.session.timeout.ms (6000)",
        ),
        ({"group_share_record_lock_duration_ms": "60001"}, "and group.share.max.record.lock.duration.ms (60000)"),
        ({"group_streams_num_standby_replicas": "3"}, "no more than group.streams.max.standby.replicas (2)"),
        ({"group_share_max_size": "201", "group_share_max_share_sessions": "200"}, "group.share.max.share.sessions"),
        ({"group_share_assignors": "simple,other"}, "exactly one"),
        ({"group_coordinator_rebalance_protocols": "consumer"}, "the classic protocol cannot be disabled"),
        ({"group_consumer_assignors": "uniform,mine"}, "unknown assignor mine; available: uniform, range"),
        ({"log_cleaner_dedupe_buffer_size": "1048576"}, "more than 1048576"),
        ({"replica_selector_class": "com.example.Selector"}, "RackAwareReplicaSelector"),
        ({"log_cleaner_dedupe_buffer_size": "4194304", "log_cleaner_threads": "4"}, "more than 4194304"),
        ({"log_cleaner_min_compaction_lag_ms": "5", "log_cleaner_max_compaction_lag_ms": "4"}, "(4)"),
        ({"node_id": "1", "broker_id": "2"}, "node.id is 1"),
        ({"queued_max_request_bytes": "1000"}, "at least socket.request.max.bytes (104857600)"),
        ({"process_roles": "broker"}, "requires controller.quorum.bootstrap.servers"),
        ({"process_roles": "controller"}, "PLAINTEXT must be one of controller.listener.names"),
        (
            {"process_roles": "controller", "listeners": "A://:1", "listener_security_protocol_map": "A:PLAINTEXT"},
            "A must be one of controller.listener.names",
        ),
        ({**_CONTROLLER, "controller_quorum_voters": "2@localhost:1"}, "the voter must be node 1"),
        ({**_CONTROLLER, "controller_quorum_voters": "1@localhost:1,2@localhost:2"}, "only voter"),
        ({**_BROKER, "inter_broker_listener_name": "B"}, "the listener B, which is not in"),
        ({**_BROKER, "security_inter_broker_protocol": "SASL_SSL"}, "the listener SASL_SSL, which is not in"),
        (
            {**_BROKER, "inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "PLAINTEXT"},
            "security.inter.broker.protocol is also set",
        ),
        ({"log_dirs": "/a,/b", "cordoned_log_dirs": "/c"}, "/c is not in log.dirs (/a, /b)"),
        ({"log_dirs": "/a,/b", "cordoned_log_dirs": "*,/a"}, "* means all log directories"),
        ({"early_start_listeners": "CONTROLLER,B"}, "B is neither in listeners nor in controller.listener.names"),
        ({**_CONTROLLER, "advertised_listeners": "B://localhost:1"}, "has no protocol for B"),
        ({"authorizer_class_name": "org.apache.kafka.Authorizer"}, "Java classes are not loaded"),
        ({"super_users": "User:admin"}, "has no effect without authorizer.class.name"),
        ({"allow_everyone_if_no_acl_found": "true"}, "has no effect without authorizer.class.name"),
        ({"authorizer_class_name": _AUTHORIZER, "super_users": "User:a;b"}, "separated by semicolons"),
        ({"authorizer_class_name": _AUTHORIZER, "allow_everyone_if_no_acl_found": "yes"}, "must be true or false"),
    ],
)
def test_conflicting_settings_prevent_startup(settings: dict[str, str], words: str) -> None:
    assert words in refusal(**settings)


def test_a_controller_without_a_broker_listens_for_brokers() -> None:
    config = config_of(**_CONTROLLER, controller_quorum_voters="1@localhost:1")
    check_broker_config(config)
    assert config.listeners == ()
    (listener,) = config.controller_listeners
    assert (listener.name, listener.host, listener.port) == ("CONTROLLER", "localhost", 1)
    assert listener.security_protocol == "PLAINTEXT"  # the default for controller listeners, as in Apache Kafka


def test_request_bytes_may_be_unlimited() -> None:
    check_broker_config(config_of(queued_max_request_bytes="-1"))


def test_unknown_settings_are_listed_in_one_line() -> None:
    config = config_of(zookeeper_connect="h", my_plugin="1", listener_name_plaintext_max_connections="9")
    check_broker_config(config)
    assert warnings(config) == ["unknown settings, ignored: my.plugin, zookeeper.connect"]


def test_settings_that_do_not_fit_the_protocol_of_their_listener_cause_a_warning() -> None:
    names = {"listeners": "A://a:1,B://b:1,C://c:1", "listener_security_protocol_map": "A:PLAINTEXT,B:SSL,C:SASL_SSL"}
    each = {
        f"listener_name_{name}_{setting}": value
        for name in ("a", "b", "c")
        for setting, value in (("ssl_client_auth", "required"), ("plain_sasl_jaas_config", "x"))
    }
    assert warnings(config_of(**names, **each)) == [
        "settings of listeners whose protocol has no TLS or SASL, ignored: listener.name.a.plain.sasl.jaas.config, "
        "listener.name.a.ssl.client.auth, listener.name.b.plain.sasl.jaas.config"
    ]


def test_settings_without_effect_are_listed_unless_they_have_the_default_value() -> None:
    config = config_of(num_io_threads="16", num_network_threads="3", offsets_topic_replication_factor="3")
    assert warnings(config) == ["settings that have no effect yet: num.io.threads"]


def test_password_is_never_in_an_error() -> None:
    assert "hunter2" not in refusal(ssl_key_password="hunter2", num_partitions="0")
