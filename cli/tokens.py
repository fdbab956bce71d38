"""``moldau tokens``: create, list, renew and expire delegation tokens."""

import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click

from ..protocol.errors import ErrorCode
from ..protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ..protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ..protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ..protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ..security.acl_arguments import principal_of
from .client import bootstrap_option
from .cluster import Cluster, cluster, explain
from .failure import Failure
from .output import print_json, print_table
from .parsed_options import duration_ms
from .suggestions import CommandGroup

_HMAC_BYTES = 64
_HINTS = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the server has no tokens; set delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "tokens require a connection with SASL or a client certificate, and not one that was authenticated by a token; "
        "see --command-config"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "tokens of other owners require the operation create-tokens",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such token; `moldau tokens list` lists them",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token has expired",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only the owner and the renewers may change a token",
    ErrorCode.UNSUPPORTED_VERSION: "metadata.version must be 3.6-IV2 or later",
}

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("tokens", cls=CommandGroup, short_help="Create, list, renew and expire delegation tokens.")
def command() -> None:
    """Create, list, renew and expire delegation tokens, with which clients authenticate without a password.

    A token is created with the password or the certificate of its owner. A client authenticates with SCRAM: its user
    is the id of the token, its password the HMAC, with the option tokenauth=true.

    \b
    Examples:
      moldau tokens create --renewer bob --max-lifetime 7d
      moldau tokens list
      moldau tokens renew TOKEN --period 12h
      moldau tokens expire TOKEN
    """


@command.command("create", short_help="Create a token.")
@click.option("--owner", metavar="PRINCIPAL", help="The owner. By default, the user of the connection.")
@click.option("--renewer", "renewers", metavar="PRINCIPAL", multiple=True, help="Who may renew it. Repeatable.")
@click.option(
    "--max-lifetime", metavar="DURATION", callback=duration_ms,
    help="How long it can be renewed, e.g. 7d. By default, as long as the server permits.",
)  # fmt: skip
@_json_option
@bootstrap_option
def create(
    owner: str | None, renewers: tuple[str, ...], max_lifetime: int | None, as_json: bool, bootstrap_server: str
) -> None:
    """Create a token, and print it with its HMAC, which is a secret.

    \b
    Examples:
      moldau tokens create
      moldau tokens create --owner carol --renewer bob
    """
    request = CreateDelegationTokenRequest(
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_principal, renewers)
        ],
        max_lifetime_ms=-1 if max_lifetime is None else max_lifetime,
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = _principal(owner)
    with cluster(bootstrap_server) as servers:
        token = servers.ask(request)
    _check("cannot create a token", token.error_code)
    found = {
        "token": token.token_id,
        "hmac": b64encode(token.hmac).decode(),
        "owner": f"{token.principal_type}:{token.principal_name}",
        "expires": _time(token.expiry_timestamp_ms),
        "renewable_until": _time(token.max_timestamp_ms),
    }
    if as_json:
        print_json(found)
    else:
        for name, value in found.items():
            print(f"{name.replace('_', ' ')}: {value}")


@command.command("list", short_help="List tokens.")
@click.option("--owner", "owners", metavar="PRINCIPAL", multiple=True, help="Only those of an owner. Repeatable.")
@_json_option
@bootstrap_option
def list_tokens(owners: tuple[str, ...], as_json: bool, bootstrap_server: str) -> None:
    """List the tokens that the user owns, may renew, or may describe. HMACs are not shown.

    \b
    Examples:
      moldau tokens list
      moldau tokens list --owner alice --json
    """
    with cluster(bootstrap_server) as servers:
        tokens = sorted(_tokens(servers, owners or None), key=lambda token: (token.issue_timestamp, token.token_id))
    rows = [
        (
            token.token_id,
            f"{token.principal_type}:{token.principal_name}",
            f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers],
            _time(token.issue_timestamp),
            _time(token.expiry_timestamp),
            _time(token.max_timestamp),
        )
        for token in tokens
    ]
    columns = ("token", "owner", "requester", "renewers", "issued", "expires", "renewable until")
    if as_json:
        print_json([dict(zip((name.replace(" ", "_") for name in columns), row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, [(*row[:3], ", ".join(row[3]), *row[4:]) for row in rows])
    else:
        print("No tokens. Create one with `moldau tokens create`.", file=sys.stderr)


@command.command("renew", short_help="Move the expiration of a token.")
@click.argument("token")
@click.option(
    "--period", metavar="DURATION", callback=duration_ms,
    help="Expire after this time, e.g. 12h. By default, and at most, after the time that the server sets.",
)  # fmt: skip
@bootstrap_option
def renew(token: str, period: int | None, bootstrap_server: str) -> None:
    """Move the expiration of a token, which may also become earlier. TOKEN is its id or its HMAC.

    \b
    Examples:
      moldau tokens renew TOKEN
      moldau tokens renew TOKEN --period 12h
    """
    with cluster(bootstrap_server) as servers:
        request = RenewDelegationTokenRequest(
            hmac=_hmac(servers, token), renew_period_ms=-1 if period is None else period
        )
        renewed = servers.ask(request)
    _check(f"cannot renew {_shown(token)}", renewed.error_code)
    print(f"{_shown(token)} expires at {_time(renewed.expiry_timestamp_ms)}.")


@command.command("expire", short_help="Remove a token.")
@click.argument("token")
@click.option("--period", metavar="DURATION", callback=duration_ms, help="Expire after this time, not immediately.")
@bootstrap_option
def expire(token: str, period: int | None, bootstrap_server: str) -> None:
    """Remove a token, or let it expire later. TOKEN is its id or its HMAC.

    Clients that are connected with the token stay connected until its previous expiration.

    \b
    Examples:
      moldau tokens expire TOKEN
      moldau tokens expire TOKEN --period 1h
    """
    with cluster(bootstrap_server) as servers:
        request = ExpireDelegationTokenRequest(
            hmac=_hmac(servers, token), expiry_time_period_ms=-1 if period is None else period
        )
        expired = servers.ask(request)
    _check(f"cannot expire {_shown(token)}", expired.error_code)
    if period is None:
        print(f"Removed {_shown(token)}.")
    else:
        print(f"{_shown(token)} expires at {_time(expired.expiry_timestamp_ms)}.")


def _tokens(servers: Cluster, owners: Iterable[str] | None) -> Any:
    """The tokens that the user may see. Raises Failure."""
    wanted = None
    if owners is not None:
        wanted = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, owners)
        ]
    response = servers.ask(DescribeDelegationTokenRequest(owners=wanted))
    _check("cannot list tokens", response.error_code)
    return response.tokens


def _hmac(servers: Cluster, token: str) -> bytes:
    """The HMAC of a token, which is named by its id or its HMAC. Raises Failure."""
    decoded = _decoded(token)
    if decoded is not None:
        return decoded
    for each in _tokens(servers, None):
        if each.token_id == token:
            return bytes(each.hmac)
    raise Failure(f"there is no token {token} that the user may see; `moldau tokens list` lists them")


def _decoded(token: str) -> bytes | None:
    """The HMAC if the argument is one in Base64, and no id."""
    try:
        decoded = b64decode(token, validate=True)
    except ValueError:
        return None
    return decoded if len(decoded) == _HMAC_BYTES else None


def _shown(token: str) -> str:
    return "the token" if _decoded(token) is not None else token  # an HMAC is a secret


def _principal(text: str) -> tuple[str, str]:
    kind, _, name = principal_of(text).partition(":")
    return kind, name


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _check(what: str, code: int) -> None:
    if code:
        raise Failure(f"{what}: {explain(code, hints=_HINTS)}")
