"""Which topics of a fetch its client may read.

A session may have partitions that the request does not name, so a fetch is authorized after its session was found. A
session remembers the topics that its client may read until the ACLs change, so a decision is made once and not for each
request. Refused topics are decided for each request, for the audit log.

The decision is made when the request arrives, and not again when a waiting fetch is completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.acl import AclOperation, AclResource
from ..records.fetch_session import FetchContext, Readable, TopicKey

if TYPE_CHECKING:
    from ..authorizer import Authorizer
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..context import RequestContext

_REQUEST: Final = "Fetch"
_SPARE: Final = 1000
"""A session may remember this many topics in addition to one per partition. Clients can name any number."""


def authorize(broker: Broker, authorizer: Authorizer, context: RequestContext, fetch: FetchContext) -> None:
    """Set `FetchContext.readable`."""
    for _ in authorize_in_steps(broker, authorizer, context, fetch):
        pass


def authorize_in_steps(
    broker: Broker, authorizer: Authorizer, context: RequestContext, fetch: FetchContext
) -> Sliced[None]:
    """Like `authorize`, one partition per step."""
    principal, host = context.principal, authorizer.host_of(context.client_host)
    if fetch.limits.is_follower:
        if not authorizer.allows(principal, host, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, request=_REQUEST):
            fetch.readable = ()
        return
    readable = _remembered(fetch, (authorizer.epoch, principal, host))
    refused: set[TopicKey] = set()
    topics = broker.metadata.image.topics_by_id
    for wanted in list(fetch.partitions):  # a session may change in between
        topic = wanted.topic
        if topic not in readable and topic not in refused:
            if isinstance(topic, str):
                name: str | None = topic
            else:
                found = topics.get(topic)
                name = None if found is None else found.name
            if name is not None and authorizer.allows(
                principal, host, AclOperation.READ, AclResource.TOPIC, name, request=_REQUEST
            ):
                readable.add(topic)
            else:
                refused.add(topic)  # or there is no such topic
        yield 1
    fetch.readable = readable


def _remembered(fetch: FetchContext, client: tuple[int, str, str]) -> set[TopicKey]:
    """The topics that the client may read, as far as they are known."""
    session = fetch.session
    if session is None:
        return set()
    known = session.readable
    if known is None or known.client != client or len(known.topics) > len(session.partitions) + _SPARE:
        known = session.readable = Readable(client, set())
    return known.topics
