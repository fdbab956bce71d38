"""How the programs around a client are started: members of groups (`group_member`) and producers (`transactor`)."""

import json
import sys
from dataclasses import asdict

from moldau.testing.clients.franz_go import FranzGoClient
from moldau.testing.clients.group_member import Options
from moldau.testing.clients.java import java_command

_PYTHON_MODULES = {"kafka-python": "kafka_python", "confluent-kafka": "confluent", "aiokafka": "aiokafka"}


def program_command(client: str) -> list[str]:
    """The command line of the program around a client in another language, which is built if necessary."""
    return FranzGoClient.command() if client == "franz-go" else java_command("CompatDriver")


def member_command(client: str, options: Options) -> list[str]:
    """The command line of a member of a group."""
    argument = json.dumps(asdict(options))
    if client == "franz-go":
        return [*FranzGoClient.command(), "group-member", argument]
    if client == "java":
        return [*java_command("GroupMember"), argument]
    return [sys.executable, "-m", f"moldau.testing.clients.group_member_{_PYTHON_MODULES[client]}", argument]


def transactor_command(client: str) -> list[str]:
    """The command line of a program with transactional producers."""
    if client == "franz-go":
        return [*FranzGoClient.command(), "transactor"]
    if client == "java":
        return java_command("Transactor")
    return [sys.executable, "-m", f"moldau.testing.clients.transactor_{_PYTHON_MODULES[client]}"]
