"""``moldau users``: list, set, remove the SCRAM credentials of users."""

import secrets
import sys
from pathlib import Path
from typing import Final

import click

from ..protocol.errors import ErrorCode
from ..protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ..protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ..security.scram import MAX_ITERATIONS, MECHANISMS, MECHANISMS_BY_CODE, MIN_ITERATIONS, salted_password
from ..security.scram_arguments import SALT_BYTES
from .client import bootstrap_option
from .cluster import Cluster, check_accepted, cluster
from .failure import Failure
from .output import print_json, print_table
from .suggestions import CommandGroup

_DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"

_mechanism_option = click.option(
    "--mechanism", type=click.Choice(list(MECHANISMS)), default=_DEFAULT_MECHANISM, show_default=True,
    help="The SASL mechanism of the credential.",
)  # fmt: skip


@click.group("users", cls=CommandGroup, short_help="List, set and remove SCRAM credentials.")
def command() -> None:
    """List, set and remove the SCRAM credentials of users.

    \b
    Examples:
      moldau users list
      moldau users set alice
      moldau users set alice --password-file secret --mechanism SCRAM-SHA-256
      moldau users remove alice
    """


@command.command("list", short_help="List the users with SCRAM credentials.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@bootstrap_option
def list_users(as_json: bool, bootstrap_server: str) -> None:
    """List the users that have SCRAM credentials, with mechanisms and iterations.

    \b
    Examples:
      moldau users list --json
    """
    with cluster(bootstrap_server) as servers:
        found = all_users(servers)
    if as_json:
        print_json([dict(zip(("user", "mechanism", "iterations"), row, strict=True)) for row in found])
    elif found:
        print_table(("user", "mechanism", "iterations"), found)
    else:
        print("No users. Create one with `moldau users set NAME`.", file=sys.stderr)


@command.command("set", short_help="Create a user, or change the password.")
@click.argument("name")
@click.option("--password-file", type=click.Path(path_type=Path), help="Read the password from a file's first line.")
@_mechanism_option
@click.option(
    "--iterations", type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS), default=MIN_ITERATIONS, show_default=True,
    help="The number of iterations of the salted password.",
)  # fmt: skip
@bootstrap_option
def set_user(name: str, password_file: Path | None, mechanism: str, iterations: int, bootstrap_server: str) -> None:
    """Set the password of a user, who is created if necessary. Without --password-file, the command asks for it, or
    reads it from standard input if that is no terminal.

    The server receives a salted hash of the password. Existing connections of the user stay open.

    \b
    Examples:
      moldau users set alice
      moldau users set alice --password-file secret --iterations 8192
    """
    password = _password(password_file)
    with cluster(bootstrap_server) as servers:
        set_password(servers, name, password, mechanism=mechanism, iterations=iterations)
    print(f"Set the password of {name} ({mechanism}).")


@command.command("remove", short_help="Remove a credential of a user.")
@click.argument("name")
@_mechanism_option
@bootstrap_option
def remove_user(name: str, mechanism: str, bootstrap_server: str) -> None:
    """Remove the credential of a user. Existing connections of the user stay open.

    \b
    Examples:
      moldau users remove alice
      moldau users remove alice --mechanism SCRAM-SHA-256
    """
    with cluster(bootstrap_server) as servers:
        remove_credential(servers, name, mechanism=mechanism)
    print(f"Removed the credential of {name} ({mechanism}).")


def _password(path: Path | None) -> str:
    if path is None:
        if sys.stdin.isatty():
            return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
        line = sys.stdin.readline().rstrip("\r\n")
        if not line:
            raise Failure("there is no terminal, and standard input has no password; use --password-file")
        return line
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"the password cannot be read from {path}: {error}") from error
    if not lines or not lines[0]:
        raise Failure(f"the first line of {path} is empty; it must be the password")
    return lines[0]


def all_users(servers: Cluster) -> list[tuple[str, str, int]]:
    """The user, the mechanism and the iterations of each SCRAM credential, in order. Raises Failure."""
    response = servers.ask(DescribeUserScramCredentialsRequest(users=None))
    _check("cannot list users", response.error_code, response.error_message)
    return [
        (str(user.user), MECHANISMS_BY_CODE[info.mechanism].name, int(info.iterations))
        for user in sorted(response.results, key=lambda user: str(user.user))
        for info in user.credential_infos
        if info.mechanism in MECHANISMS_BY_CODE
    ]


def set_password(servers: Cluster, name: str, password: str, *, mechanism: str, iterations: int) -> None:
    """Set the credential of a user; ``mechanism`` is a key of `MECHANISMS`. Raises Failure."""
    salt = secrets.token_bytes(SALT_BYTES)
    chosen = MECHANISMS[mechanism]
    change = ScramCredentialUpsertion(
        name=name,
        mechanism=chosen.code,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(chosen, password, salt, iterations),
    )
    _alter(servers, AlterUserScramCredentialsRequest(upsertions=[change]), f"cannot set {name}")


def remove_credential(servers: Cluster, name: str, *, mechanism: str) -> None:
    """Remove the credential of a user. Raises Failure, also if it does not exist."""
    change = ScramCredentialDeletion(name=name, mechanism=MECHANISMS[mechanism].code)
    _alter(servers, AlterUserScramCredentialsRequest(deletions=[change]), f"cannot remove {name}")


def _alter(servers: Cluster, request: AlterUserScramCredentialsRequest, failed: str) -> None:
    (result,) = servers.ask(request).results
    _check(failed, result.error_code, result.error_message)


def _check(what: str, code: int, message: str | None) -> None:
    if code == ErrorCode.RESOURCE_NOT_FOUND:
        raise Failure(f"{what}: there is no such credential; `moldau users list` lists them")
    check_accepted(what, code, message)
