"""franz-go's own tests of its package ``kgo``, from its module, run once against the server under test.

They test more than our own tests: members join and leave while others fetch, with every balancer, in the classic
protocol and in KIP-848, also in transactions, and each record is consumed once. Moldau must pass all tests that Apache
Kafka 4.3.1 passes, which is all of them. The tests that use a server are listed here, so that a removed test is
noticed. The tests use fixed timeouts and their own topics in a dedicated server; tests of share groups skip themselves
where the server does not offer them.
"""

import os
import re
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.testing.clients import franz_go
from moldau.testing.servers import Server

# The configuration that the public suites share.
CONFIG = {
    "auto.create.topics.enable": "true",
    "num.partitions": "4",
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}

# The suite takes two minutes, and several times that in parallel with other tests. The first test waits for it.
DEADLINE_S = 900
pytestmark = [pytest.mark.full, pytest.mark.timeout(DEADLINE_S + 100)]

# Its default is 500,000. Rebalances and waits take most of the time, so a thousand records for each of a chain's steps
# are as good a test of groups and of transactions.
RECORDS = 20_000

PASSED_BY_APACHE_KAFKA = (
    "Test848RegexBrokerResolves",
    "TestAddRemovePartitions",
    "TestClient_Produce",
    "TestClient_ProduceLargeMessages",
    "TestClient_ProduceLargeMessages/LargeMessage_FailureBroker",
    "TestClient_ProduceLargeMessages/LargeMessage_FailureClient",
    "TestConsumeMaxDecompressBatchBytes",
    "TestConsumeRegex",
    "TestConsumeRegexShareSkipsInternal",
    "TestConsumeTopicRetrieval",
    "TestConsumeTopicRetrieval_Many",
    "TestDirectPartitionPurge",
    "TestGroupETL",
    "TestGroupETL/cooperative-sticky",
    "TestGroupETL/cooperative-sticky/static",
    "TestGroupETL/range",
    "TestGroupETL/range/848",
    "TestGroupETL/sticky/848",
    "TestGroupETL/sticky/848/static",
    "TestGroupSimple",
    "TestGroupSimple/848",
    "TestGroupSimple/classic",
    "TestIssue1034",
    "TestIssue325",
    "TestIssue337",
    "TestIssue434",
    "TestIssue523/roundrobin",
    "TestIssue523/sticky",
    "TestIssue648",
    "TestIssue769",
    "TestIssue810",
    "TestIssue831",
    "TestIssue865",
    "TestIssueFetchLargerThanBrokerMaxReadBytes",
    "TestIssueProduceSyncManualPartitionNegativeDoesNotPanic",
    "TestPauseIssue489",
    "TestPauseIssueOct2023",
    "TestPing",
    "TestPooling",
    "TestShareGroup",
    "TestShareGroupAckOnClose",
    "TestShareGroupETL",
    "TestShareGroupOffsetsAdmin",
    "TestTxnEtl",
    "TestTxnEtl/cooperative-sticky",
    "TestTxnEtl/cooperative-sticky/static",
    "TestTxnEtl/range",
    "TestTxnEtl/range/848",
    "TestTxnEtl/sticky/848",
    "TestTxnEtl/sticky/848/static",
    "TestUnknownGroupOffsetFetchPinned",
)

OF_SHARE_GROUPS = {name for name in PASSED_BY_APACHE_KAFKA if "Share" in name}

SKIPPED_EVERYWHERE = {
    "TestIssueProduceBrokerTooOldFailsRecords",  # wants a broker before 2.3
    "TestOAuthAuth",
    "TestSCRAMAuth",
    "TestSCRAMAuthBadCredentials",
}

_RESULT = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) ", re.MULTILINE)


class SuiteRun(NamedTuple):
    """The output of the suite, and the result of each of its tests."""

    output: str
    results: dict[str, str]


@pytest.fixture(scope="module")
def suite(new_server: Callable[..., AbstractContextManager[Server]]) -> SuiteRun:
    program = franz_go.own_tests()
    with new_server(CONFIG) as server:
        output = run(program, server.bootstrap_servers)
    return SuiteRun(output, {name: result for result, name in _RESULT.findall(output)})


def run(program: Path, bootstrap_servers: str) -> str:
    """Run the suite, and return its output. One test reads its own sources."""
    done = subprocess.run(
        [program, "-test.v", f"-test.timeout={DEADLINE_S}s"],
        env={
            **os.environ,
            "KGO_SEEDS": bootstrap_servers,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_LOG_LEVEL": "none",
        },
        cwd=franz_go.own_sources(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("name", PASSED_BY_APACHE_KAFKA)
def test_tests_that_pass_with_apache_kafka_pass(suite: SuiteRun, name: str, pytestconfig: pytest.Config) -> None:
    result = suite.results.get(name)
    if name in OF_SHARE_GROUPS and not pytestconfig.getoption("apache"):
        assert result == "SKIP", "share groups are served now: take this exception out"
        pytest.skip("share groups are not served yet")
    assert result == "PASS", suite.output[-20_000:]


def test_no_other_test_is_skipped_or_fails(suite: SuiteRun) -> None:
    others = {name for name, result in suite.results.items() if result != "PASS"}
    assert others - OF_SHARE_GROUPS == SKIPPED_EVERYWHERE, suite.output[-20_000:]
