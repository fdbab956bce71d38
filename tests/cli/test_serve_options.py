"""From the options of ``moldau serve`` to its configuration; no server is started here."""

import gc
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from moldau.cli import serve
from moldau.cli.data_directory import default_data_directory
from moldau.config.checks import check_broker_config, warnings
from moldau.config.definition import ConfigError

from .conftest import Run

EVERYTHING = [
    "--listen", "127.0.0.1:0", "--listen=INSIDE://h:1", "--data-dir", "/d", "--durable", "--config", "f",
    "--set", "a=b", "--set=c=d", "--allow-non-empty", "--ephemeral", "--print-config", "--exit-with-stdin",
    "--control", "127.0.0.1:1", "--brokers", "3", "--member-of", "1,2", "--unsynced",
    "--fork-host", "--secure", "--metrics", "127.0.0.1:2", "--console", "127.0.0.1:3",
    "--log-level", "DEBUG", "--log-format", "json",
]  # fmt: skip


def test_options_are_parsed() -> None:
    assert serve.parse(EVERYTHING) == {
        "--listen": ["127.0.0.1:0", "INSIDE://h:1"],
        "--data-dir": ["/d"],
        "--durable": [],
        "--config": ["f"],
        "--set": ["a=b", "c=d"],
        "--allow-non-empty": [],
        "--ephemeral": [],
        "--print-config": [],
        "--exit-with-stdin": [],
        "--control": ["127.0.0.1:1"],
        "--brokers": ["3"],
        "--member-of": ["1,2"],
        "--unsynced": [],
        "--fork-host": [],
        "--secure": [],
        "--metrics": ["127.0.0.1:2"],
        "--console": ["127.0.0.1:3"],
        "--log-level": ["DEBUG"],
        "--log-format": ["json"],
    }
    assert serve.parse([]) == {}


def test_click_understands_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[serve.Options] = []
    monkeypatch.setattr(serve, "run", lambda options: taken.append(options) or 0)  # type: ignore[func-returns-value]
    with pytest.raises(SystemExit):
        serve.command().main(EVERYTHING, prog_name="serve")
    assert taken == [serve.parse(EVERYTHING)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--brew"],
        ["127.0.0.1:9092"],
        ["--listen"],
        ["--data-dir", "a", "--data-dir", "b"],
        ["--durable=yes"],
        ["--dur"],
    ],
)
def test_help_and_usage_errors_are_left_to_click(arguments: list[str]) -> None:
    assert serve.parse(arguments) is None


def test_every_option_is_tested_above() -> None:
    parsed = serve.parse(EVERYTHING)
    assert parsed is not None
    assert parsed.keys() == {option.name for option in serve.OPTIONS}


def test_level_and_format_of_the_log_become_settings() -> None:
    config = serve.load_config({"--log-level": ["WARNING"], "--log-format": ["json"]}, {})
    assert (config.str("moldau.log.level"), config.origin("moldau.log.level")) == ("WARNING", "--log-level")
    assert (config.str("moldau.log.format"), config.origin("moldau.log.format")) == ("json", "--log-format")


def test_metrics_becomes_the_listener_of_metrics() -> None:
    config = serve.load_config({"--metrics": ["127.0.0.1:9404"]}, {})
    assert config.optional_str("moldau.metrics.listener") == "127.0.0.1:9404"
    assert config.origin("moldau.metrics.listener") == "--metrics"


def test_defaults_are_the_local_machine_and_the_users_data() -> None:
    config = serve.load_config({}, {"XDG_DATA_HOME": "/data"})
    check_broker_config(config)
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.log_dirs == (str(default_data_directory({"XDG_DATA_HOME": "/data"}, sys.platform)),)
    assert config.origin("log.dirs") == "default data directory"


@pytest.mark.parametrize(
    ("environment", "platform", "directory"),
    [
        ({"XDG_DATA_HOME": "/data"}, "linux", Path("/data/moldau")),
        ({"XDG_DATA_HOME": "relative"}, "linux", Path("/home/franz/.local/share/moldau")),
        ({}, "linux", Path("/home/franz/.local/share/moldau")),
        ({"XDG_DATA_HOME": "/data"}, "darwin", Path("/home/franz/Library/Application Support/moldau")),
    ],
)
def test_default_data_directory_follows_the_platform(
    environment: dict[str, str], platform: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/franz")
    assert default_data_directory(environment, platform) == directory


@pytest.mark.parametrize(
    ("addresses", "listeners"),
    [
        (["127.0.0.1:0"], ["PLAINTEXT://127.0.0.1:0"]),
        (["0.0.0.0:9092", "[::1]:9093"], ["PLAINTEXT://0.0.0.0:9092", "PLAINTEXT_2://[::1]:9093"]),
        (["INSIDE://h:1"], ["INSIDE://h:1"]),
        (["9999"], ["PLAINTEXT://127.0.0.1:9999"]),
        (["localhost"], ["PLAINTEXT://localhost:9092"]),
        ([":9092"], ["PLAINTEXT://:9092"]),
    ],
)
def test_listen_becomes_listeners(addresses: list[str], listeners: list[str]) -> None:
    config = serve.load_config({"--listen": addresses}, {})
    check_broker_config(config)
    assert [str(listener) for listener in config.listeners] == listeners
    assert config.origin("listeners") == "--listen"


def test_listen_replaces_listeners_and_keeps_the_names_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=INSIDE://:9092,CONTROLLER://:9093\n"
        "listener.security.protocol.map=INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "advertised.listeners=INSIDE://kafka:9092\n"
    )
    config = serve.load_config({"--config": [str(file)], "--listen": ["INSIDE://127.0.0.1:0"]}, {})
    check_broker_config(config)
    assert [str(listener) for listener in config.listeners] == ["INSIDE://127.0.0.1:0"]
    assert str(config.advertised_listeners["INSIDE"]) == "INSIDE://kafka:9092"


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nfetch.max.bytes=2001\nlog.dirs=/file\nlog.flush.interval.messages=9\n")
    config = serve.load_config(
        {
            "--config": [str(file)],
            "--set": ["num.partitions=3"],
            "--data-dir": ["/option"],
            "--durable": [],
        },
        {"KAFKA_NUM_PARTITIONS": "2", "KAFKA_FETCH_MAX_BYTES": "2002", "KAFKA_LOG_DIRS": "/environment"},
    )
    assert config.int("num.partitions") == 3
    assert config.int("fetch.max.bytes") == 2002
    assert config.log_dirs == ("/option",)
    assert config.int("log.flush.interval.messages") == 1


# The settings of Apache Kafka 4's default file, for one node.
STOCK_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_stock_file_of_apache_kafka_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(STOCK_FILE)
    config = serve.load_config({"--config": [str(file)]}, {})
    check_broker_config(config)
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert str(config.advertised_listeners["PLAINTEXT"]) == "PLAINTEXT://localhost:9092"
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert warnings(config) == []


def test_variables_of_a_compose_file_are_accepted() -> None:
    config = serve.load_config(
        {},
        {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": "INTERNAL://:29092,EXTERNAL://:9092,CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": "INTERNAL://kafka:29092,EXTERNAL://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "true",
            "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
            "KAFKA_HEAP_OPTS": "-Xmx512m",
            "KAFKA_HOME": "/opt/kafka",
        },
    )
    check_broker_config(config)
    assert [str(listener) for listener in config.listeners] == ["INTERNAL://:29092", "EXTERNAL://:9092"]
    assert warnings(config)[0] == "unknown settings, ignored: home"


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_configured_directory_replaces_the_default(name: str) -> None:
    assert serve.load_config({"--set": [f"{name}=/a,/b"]}, {}).log_dirs == ("/a", "/b")


GROUP_DELAYS = ("group.initial.rebalance.delay.ms", "group.consumer.assignment.interval.ms")


def group_delays(options: serve.Options, environment: dict[str, str] | None = None) -> list[int]:
    config = serve.load_config(options, environment or {})
    check_broker_config(config)
    return [config.int(name) for name in GROUP_DELAYS]


@pytest.mark.parametrize(
    "listeners", [[], ["127.0.0.1:0"], ["localhost:0"], ["[::1]:0"], ["127.0.0.1:0", "127.1.2.3:0"], ["LOCALHOST:0"]]
)
def test_groups_on_loopback_assign_partitions_immediately(listeners: list[str]) -> None:
    assert group_delays({"--listen": listeners} if listeners else {}) == [0, 0]


@pytest.mark.parametrize(
    "listeners",
    [["0.0.0.0:0"], [":0"], ["[::]:0"], ["kafka:0"], ["127.0.0.1:0", "192.168.1.1:0"], ["127.example.org:0"]],
)
def test_groups_that_other_machines_can_reach_keep_apache_kafkas_delays(listeners: list[str]) -> None:
    assert group_delays({"--listen": listeners}) == [3000, 1000]


def test_group_delays_are_apache_kafkas_with_a_config_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    assert group_delays({"--config": [str(file)]}) == [3000, 1000]


def test_group_delays_on_loopback_can_be_set() -> None:
    assert group_delays({"--set": [f"{GROUP_DELAYS[0]}=7"]}) == [7, 0]
    assert group_delays({}, {"KAFKA_GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS": "8"}) == [0, 8]
    assert group_delays({"--set": ["group.consumer.min.assignment.interval.ms=9"]}) == [0, 9]


def test_listeners_from_the_environment_decide_on_group_delays_too() -> None:
    assert group_delays({}, {"KAFKA_LISTENERS": "PLAINTEXT://:9092"}) == [3000, 1000]
    assert group_delays({}, {"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:9092"}) == [0, 0]


def test_origin_of_a_group_delay_on_loopback_is_shown(run: Run) -> None:
    printed = run("serve", "--print-config").text
    for name in GROUP_DELAYS:
        assert f"# default on loopback\n{name}=0\n" in printed


def test_relative_data_directory_is_made_absolute() -> None:
    assert serve.load_config({"--data-dir": ["here"]}, {}).log_dirs == (str(Path.cwd() / "here"),)


def test_ephemeral_conflicts_with_a_directory() -> None:
    assert serve.load_config({"--ephemeral": []}, {}).log_dirs == ()
    with pytest.raises(ConfigError, match="mutually exclusive"):
        serve.load_config({"--ephemeral": [], "--data-dir": ["/d"]}, {})


def test_invalid_value_prevents_the_start_and_is_reported_with_range_and_origin(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_LOG_ROLL_MS", "soon")
    refused = run("serve", "--set", "log.segment.bytes=10")
    assert refused.code == 1
    assert refused.err.splitlines() == [
        "moldau: Invalid value soon for log.roll.ms: expected a whole number of 64 bits "
        "(from environment variable KAFKA_LOG_ROLL_MS)",
        "moldau: Invalid value 10 for log.segment.bytes: expected a whole number from 1048576 to 2147483647 "
        "(from --set)",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "num.partitions"], "--set requires key=value, not 'num.partitions'"),
        (["--config", "/nowhere/server.properties"], "cannot read /nowhere/server.properties: No such file"),
        (["--listen", "h:99999"], "NAME://host:port, the port from 0 to 65535"),
        (["--ephemeral", "--listen", "SSL://h:1"], "The listener SSL cannot use ssl.keystore.location: it is missing"),
        (["--listen", "http://127.0.0.1:9092"], "--listen http://127.0.0.1:9092: a Kafka listener is not HTTP; use"),
        (["--set", "num.partition=3"], "--set num.partition: unknown setting; did you mean num.partitions"),
        (["--set", "Num.Partitions=3"], "did you mean num.partitions"),
        (["--set", "frobnicate=3"], "unknown setting; `moldau serve --print-config` lists all settings"),
        (
            ["--set", "retention.ms=1"],
            "this is a setting of a topic, not of the server; its default for all topics is ",
        ),
        (["--set", "leader.replication.throttled.rate=1"], "`moldau configs set broker default leader.replication."),
    ],
)
def test_unusable_configuration_is_one_message(run: Run, arguments: list[str], words: str) -> None:
    refused = run("serve", *arguments)
    assert refused.code == 1
    assert refused.err.startswith("moldau: ")
    assert words in refused.err
    assert len(refused.err.splitlines()) == 1


def test_every_unknown_name_of_set_is_reported(run: Run) -> None:
    refused = run("serve", "--set", "num.partition=3", "--set", "num.partitions=3", "--set", "log.dir.s=x")
    assert refused.code == 1
    assert [line.partition(":")[2].split(":")[0] for line in refused.err.splitlines()] == [
        " --set num.partition",
        " --set log.dir.s",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "background.threads",  # a setting of Apache Kafka without effect in Moldau
        "listener.name.internal.ssl.keystore.location",
        "config.providers.file.class",
        "rsm.config.bucket",
        "min.insync.replicas",
    ],
)
def test_names_of_apache_kafka_s_settings_are_accepted(name: str) -> None:
    assert serve.load_config({"--set": [f"{name}=1"]}, {}).static[name].text == "1"


def test_unknown_names_in_a_file_or_a_variable_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.connect=h:2181\n")
    config = serve.load_config({"--config": [str(file)]}, {"KAFKA_SERVICE_HOST": "10.0.0.1"})
    check_broker_config(config)
    assert warnings(config) == ["unknown settings, ignored: service.host, zookeeper.connect"]


def test_print_config_shows_values_and_origins(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NO_SUCH", "1")
    printed = run("serve", "--print-config", "--set", "num.partitions=3", "--set", "ssl.key.password=hunter2")
    assert printed.code == 0
    assert "# --set\nnum.partitions=3\n" in printed.text
    assert "\nmessage.max.bytes=1048588\n" in printed.text
    assert "# broker.rack is not set" in printed.text
    assert "ssl.key.password=[hidden]" in printed.text
    assert "hunter2" not in printed.text + printed.err
    assert "unknown settings, ignored: no.such" in printed.err


def test_printed_config_can_be_read_back(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(run("serve", "--print-config", "--data-dir", "/d", "--set", "log.retention.hours=5").out)
    again = serve.load_config({"--config": [str(file)]}, {})
    check_broker_config(again)
    assert again.topic_defaults() == serve.load_config({"--set": ["log.retention.hours=5"]}, {}).topic_defaults()


def test_serve_does_not_import_the_tools() -> None:
    """The imports of the tools would double the startup time of a server."""
    program = (
        "import sys; from moldau.cli import serve; import moldau.cli.main;"
        "from moldau.config.checks import check_broker_config;"
        "options = serve.parse(['--listen', '127.0.0.1:0', '--set', 'num.partitions=2']);"
        "check_broker_config(serve.load_config(options, {}));"
        "import moldau.server.main;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "moldau" in loaded
    assert loaded.isdisjoint({"click", "rich", "kafka", "hypothesis", "pytest"})


def test_collections_are_disabled_for_the_imports_of_a_start_only(monkeypatch: pytest.MonkeyPatch) -> None:
    during = []

    def load_config(*_: object) -> NoReturn:
        during.append(gc.isenabled())
        raise ConfigError("refused")

    monkeypatch.setattr(serve, "load_config", load_config)
    assert serve.run({}) == 1
    assert during == [False]
    assert gc.isenabled()
