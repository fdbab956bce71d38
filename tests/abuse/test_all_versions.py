"""The first request of every version of every API, sent to a server that has just started.

The server compiles the codec of a version for its first request, and other clients must not wait for that.
"""

from __future__ import annotations

import random

from moldau.protocol.api import request_class
from moldau.protocol.messages.produce import ProduceRequest
from moldau.server.apis import APIS

from . import attackers
from .conftest import Target

# Each is the first of its version. More would measure an iteration of the event loop with so many connections.
AT_ONCE = 20


def first_requests(dice: random.Random) -> list[bytes]:
    """A request of each served version of each API, with the defaults of its fields, in random order."""
    made = []
    for api in APIS:
        request = request_class(api.key)()
        if isinstance(request, ProduceRequest):
            request.acks = 1  # by default, 0: no response
        versions = range(max(api.min_version, api.lowest_served), api.max_version + 1)
        made += [attackers.frame(request, version) for version in versions]
    dice.shuffle(made)
    return made


def test_first_requests_over_one_connection_each(target: Target, dice: random.Random) -> None:
    requests = first_requests(dice)
    with target.attack(f"first requests of {len(requests)} versions, one after another"):
        for request in requests:
            attackers.exchange(target.address, request)


def test_first_requests_over_several_connections(target: Target, dice: random.Random) -> None:
    requests = first_requests(dice)
    with target.attack(f"first requests of {len(requests)} versions, {AT_ONCE} at once"):
        for first in range(0, len(requests), AT_ONCE):
            some = requests[first : first + AT_ONCE]
            with attackers.connections(target.address, len(some)) as opened:
                for connection, request in zip(opened, some, strict=True):
                    attackers.send(connection, request)
                for connection in opened:
                    attackers.receive_frame(connection)
