"""Links: outgoing connections to other nodes of the cluster.

A `Link` sends requests to one address. It connects when it has a request to send, asks for the peer's API versions
first, sends requests in order without waiting for earlier responses, and reconnects after a failure. Each request is
completed exactly once, later, with a response or an error, whatever happens to the connection. What the caller must
know:

- **A link never sends a request twice.** If the connection is lost before the response arrives, the request fails with
  a `LinkError` whose `maybe_processed` is true. Only the caller knows whether a repetition is harmless.
- **A failed attempt to connect fails all requests that wait for it**, so that a caller with several addresses can try
  the next one. The next attempt starts after a pause (`LinkSettings.backoff_ms`, doubled by each failure); requests
  that are added in the meantime wait for it. A caller that immediately repeats its request therefore causes no load.
- **A timeout covers everything**: the pause, the connection, the response. If it expires after the request was sent,
  the connection is closed, because responses arrive in order and later ones would have to wait.
- **A slow request delays the later ones.** Requests that must not wait, such as heartbeats, have their own link.
- **Security** (`link_security`): with SASL, a link authenticates before its first request, and again before its session
  ends. Requests wait meanwhile; those that were sent before are still answered. If TLS or SASL fails, there is one line
  in the log per second and address.

Memory is bounded: the number of requests that wait (`max_waiting`), the unsent bytes, and the length of a response.
Requests wait unencoded, because only the peer determines their version.

The socket is behind the port `dialing.Dialer`; the protocol is in `conversation`.
"""

from __future__ import annotations

import errno
import logging
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ... import __version__
from ...protocol.api import ApiKey
from ...protocol.errors import EncodeError, ErrorCode, KafkaError, error_name
from ...protocol.messages.api_versions import ApiVersionsRequest
from ...protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ...protocol.schema import Versions
from ...security.sasl_client import SaslClientError
from ..concurrency.slices import SlicedFuture
from .conversation import STAGING_BYTES, Conversation, FrameReader, Peer, PeerError
from .dialing import Address, Dialed, Dialer, Secure, SocketDialer, Stream
from .link_security import HANDSHAKE_VERSION, PLAINTEXT, LinkSecurity, LoginError, SaslLogin
from .transport import HandshakeFailed, TurnFirst

if TYPE_CHECKING:
    import asyncio
    from random import Random

    from ...protocol.schema import Request
    from ..concurrency.background import Background, JobExecutor
    from ..concurrency.event_loop import Readiness
    from ..concurrency.slices import Sliced, Slices
    from ..concurrency.timers import Timer, TimerWheel
    from ..concurrency.turns import Turns

__all__ = ["Address", "Link", "LinkError", "LinkSettings", "Links", "Outgoing"]

logger = logging.getLogger(__name__)

# The maximum number of reads in one iteration of the event loop: a fast peer must not starve other connections.
MAX_READS_PER_EVENT = 16
# No more requests are encoded while the kernel has not accepted this many bytes.
MAX_UNSENT_BYTES = 1024 * 1024
# Concurrent look-ups of host names, and steps of SCRAM.
RESOLVERS = 2
# When a session is renewed: at this part of its lifetime, as by Apache Kafka's clients.
RENEWED_AT = (0.85, 0.95)

_API_VERSIONS: Final = ApiVersionsRequest.STABLE_VERSIONS
_AUTHENTICATE: Final = SaslAuthenticateRequest.STABLE_VERSIONS
_NONCE_BYTES: Final = 18
_LOGGED_EACH_MS: Final = 1000


class LinkError(Exception):
    """A request has no response; the text states the peer and the reason."""

    def __init__(self, reason: str, *, maybe_processed: bool = False, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.maybe_processed = maybe_processed
        """Whether the peer may have received the request."""
        self.timed_out = timed_out
        """Whether the timeout of this request has expired."""


Done = Callable[[Any, Exception | None], None]
"""Receives the response, or None and the error: a `LinkError`, or a `KafkaError` with UNSUPPORTED_VERSION."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings of a link. The defaults are those of Apache Kafka's clients."""

    setup_timeout_ms: int = 10_000
    """For a connection and the response to ApiVersions."""
    backoff_ms: int = 50
    max_backoff_ms: int = 1000
    max_response_bytes: int = 100 * 1024 * 1024
    max_in_flight: int = 100
    """How many requests may be sent before their responses arrive."""
    max_waiting: int = 10_000
    """How many requests may wait for a response. Further ones fail immediately."""


class Outgoing:
    """A request of a link."""

    __slots__ = ("_link", "_timer", "done", "is_sent", "request", "versions")

    def __init__(self, link: Link, request: Request, versions: Versions, done: Done) -> None:
        self._link = link
        self._timer: Timer | None = None
        self.request: Request | None = request
        self.versions = versions
        self.done: Done | None = done
        self.is_sent = False

    @property
    def is_done(self) -> bool:
        """Whether the request was completed or canceled."""
        return self.done is None

    def cancel(self) -> None:
        """Ignore the response. A request that was not sent yet is not sent."""
        self._end()
        self._link._forget(self)

    def expire_after(self, timeout_ms: float) -> None:
        """Limit the time until the response, from now on."""
        self._timer = self._link.timers.call_after(timeout_ms, lambda: self._link._timed_out(self, timeout_ms))

    def complete(self, response: Any, error: Exception | None) -> None:
        """Call the caller back, once."""
        done = self._end()
        if done is None:
            return
        try:
            done(response, error)
        except Exception:
            logger.exception("Processing a response of %s failed with an unexpected error", self._link)

    def _end(self) -> Done | None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        done, self.done = self.done, None
        self.request = None
        return done


class Link:
    """Requests to one address; see the module docstring. Created by `Links.open`."""

    def __init__(
        self, links: Links, address: Address, client_id: str, settings: LinkSettings, security: LinkSecurity
    ) -> None:
        self._links = links
        self._security = security
        self.timers = links.timers
        self.address = address
        self.client_id = client_id
        self.settings = settings
        self.peer: Peer | None = None
        """What the peer supports, while the link is connected; the latest known after that."""
        self.is_closed = False
        self._unsent: deque[Outgoing] = deque()
        self._in_flight: deque[Outgoing | Callable[[Any], None]] = deque()  # functions: the link's own requests
        self._stream: Stream | None = None
        self._is_ready = False  # the peer's versions are known, and the peer has authenticated this node
        self._log_in_again_at_ms: float | None = None
        self._cancel_dial: Callable[[], None] | None = None
        self._setup_timer: Timer | None = None
        self._conversation: Conversation
        self._reader: FrameReader
        self._output = bytearray()
        self._waits_for_writable = False
        self._failures = 0
        self._retry_timer: Timer | None = None  # during the pause after a failure
        self._has_answered = False  # this connection

    def __str__(self) -> str:
        return f"{self.address} ({self.client_id})"

    @property
    def is_connected(self) -> bool:
        """Whether requests can be sent immediately."""
        return self._is_ready

    @property
    def is_pausing(self) -> bool:
        """Whether the latest attempt to connect has failed, and the next one has to wait."""
        return self._retry_timer is not None

    @property
    def waiting(self) -> int:
        """How many requests wait for a response."""
        return len(self._unsent) + len(self._in_flight)

    # -- requests ------------------------------------------------------------------------------------------------------

    def send(
        self, request: Request, versions: Versions | int, done: Done, *, timeout_ms: float | None = None
    ) -> Outgoing:
        """Send a request in the highest of these versions that the peer supports.

        ``done`` is called once, after this method has returned. ``timeout_ms``: None waits as long as the connection
        lasts.
        """
        if isinstance(versions, int):
            versions = Versions(versions, versions)
        outgoing = Outgoing(self, request, versions, done)
        if self.is_closed:
            self._refuse(outgoing, "the link is closed")
        elif self.waiting >= self.settings.max_waiting:
            self._refuse(outgoing, f"{self.waiting} requests wait for a response")
        else:
            if timeout_ms is not None:
                outgoing.expire_after(timeout_ms)
            self._unsent.append(outgoing)
            self._links.later(self._pump)
        return outgoing

    def call(
        self, slices: Slices, request: Request, versions: Versions | int, *, timeout_ms: float | None = None
    ) -> Sliced[Any]:
        """The response to a request, for work in slices.

        Raises:
            LinkError: there is no response.
            KafkaError: UNSUPPORTED_VERSION.
        """
        future: SlicedFuture[Any] = SlicedFuture(slices)

        def done(response: Any, error: Exception | None) -> None:
            if error is None:
                future.succeed(response)
            else:
                future.fail(error)

        outgoing = self.send(request, versions, done, timeout_ms=timeout_ms)
        try:
            return (yield from future.result())
        except GeneratorExit:
            outgoing.cancel()
            raise

    def move(self, address: Address) -> None:
        """From now on, connect to this address: the peer has restarted elsewhere. No effect if it is the same."""
        if address == self.address:
            return
        self.address = address
        self._failures = 0
        self._cancel_pause()
        self._disconnect("the peer has another address now")
        self._links.later(self._pump)

    def lose_connection(self) -> None:
        """For tests: the connection is lost, if there is one or an attempt to connect."""
        if self._stream is not None or self._cancel_dial is not None:
            self._failed("the connection is cut")

    def close(self) -> None:
        """Disconnect. All requests that wait for a response fail."""
        if self.is_closed:
            return
        self.is_closed = True
        self._cancel_pause()
        self._disconnect("the link is closed")
        self._fail_unsent("the link is closed")
        self._links.closed(self)

    def _refuse(self, outgoing: Outgoing, reason: str) -> None:
        error = LinkError(f"{self}: {reason}")
        self._links.later(lambda: outgoing.complete(None, error))

    def _forget(self, outgoing: Outgoing) -> None:
        """A request was canceled. One that was sent keeps its place, for its response."""
        if not outgoing.is_sent and outgoing in self._unsent:
            self._unsent.remove(outgoing)

    def _timed_out(self, outgoing: Outgoing, timeout_ms: float) -> None:
        assert outgoing.request is not None
        name = ApiKey(outgoing.request.API_KEY).message_name
        error = LinkError(
            f"{self}: no response to {name} within {timeout_ms:g} ms", maybe_processed=outgoing.is_sent, timed_out=True
        )
        if outgoing.is_sent:
            outgoing.complete(None, error)
            self._failed(f"no response to {name} within {timeout_ms:g} ms")
        else:
            self._unsent.remove(outgoing)
            outgoing.complete(None, error)

    # -- the connection ------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what can be sent; connect if necessary."""
        if self.is_closed:
            return
        if self._stream is None:
            if self._unsent and self._cancel_dial is None and self._retry_timer is None:
                self._connect()
            return
        if not self._is_ready:
            return
        if self._unsent and self._log_in_again_at_ms is not None and self.timers.now_ms() >= self._log_in_again_at_ms:
            self._log_in()
            return
        while self._unsent and self._may_send():
            self._encode(self._unsent.popleft())
        self._flush()

    def _may_send(self) -> bool:
        return len(self._in_flight) < self.settings.max_in_flight and len(self._output) < MAX_UNSENT_BYTES

    def _encode(self, outgoing: Outgoing) -> None:
        request = outgoing.request
        assert request is not None
        assert self.peer is not None
        try:
            version = self.peer.highest_version(request.API_KEY, outgoing.versions)
            frame = self._conversation.request(request, version)
        except KafkaError as error:
            outgoing.complete(None, KafkaError(error.code, f"{self}: {error.message}"))
        except EncodeError as error:
            logger.exception("A request to %s cannot be encoded", self)
            outgoing.complete(None, LinkError(f"{self}: {error}"))
        else:
            outgoing.is_sent = True
            self._in_flight.append(outgoing)
            self._output += frame

    def _connect(self) -> None:
        self._cancel_dial = self._links.dial(self.address, self._dialed, self._security.secure)
        self._limit_setup("not connected")

    def _limit_setup(self, problem: str) -> None:
        timeout_ms = self.settings.setup_timeout_ms
        self._setup_timer = self.timers.call_after(
            timeout_ms, lambda: self._failed(f"{problem} within {timeout_ms} ms")
        )

    def _dialed(self, result: Stream | OSError) -> None:
        self._cancel_dial = None
        if isinstance(result, OSError):
            if isinstance(result, HandshakeFailed):
                self._links.refused(self.address, str(result))
            self._failed(f"cannot connect: {result.strerror or result}")
            return
        self._stream = result
        self._has_answered = False
        self._conversation = Conversation(self.client_id, __version__)
        self._reader = FrameReader(self._links.staging, self.settings.max_response_bytes)
        result.on_readable(self._readable)
        self._ask_for_versions(_API_VERSIONS.highest)

    def _ask_for_versions(self, version: int) -> None:
        self._output += self._conversation.api_versions(version)
        self._in_flight.append(self._learn_versions)
        self._flush()

    def _learn_versions(self, response: Any) -> None:
        peer = Peer(response)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and not self._has_answered:
            self._has_answered = True  # a second response with this error is final
            version = peer.highest_version(ApiVersionsRequest.API_KEY, _API_VERSIONS)
            self._ask_for_versions(version)
            return
        if response.error_code:
            raise PeerError(f"ApiVersions failed with {error_name(response.error_code)}")
        self.peer = peer
        self._has_answered = False
        if self._security.credentials is None:
            self._ready()
        else:
            self._log_in()

    def _ready(self) -> None:
        """Requests can be sent."""
        self._is_ready = True
        if self._setup_timer is not None:
            self._setup_timer.cancel()
            self._setup_timer = None
        self._pump()

    # -- authentication ------------------------------------------------------------------------------------------------

    def _log_in(self) -> None:
        """Authenticate, for the first time or again. Requests wait until it is complete."""
        self._is_ready = False
        if self._setup_timer is None:
            self._limit_setup("not authenticated again")
        login = SaslLogin(self._security, self._links.new_nonce(), self.address.host)
        self._send_own(login.first(), HANDSHAKE_VERSION, lambda response: self._shook_hands(login, response))

    def _send_own(self, request: Request, version: int, answered: Callable[[Any], None]) -> None:
        self._output += self._conversation.request(request, version)
        self._in_flight.append(answered)
        self._flush()

    def _shook_hands(self, login: SaslLogin, response: Any) -> None:
        try:
            first = login.after_handshake(response)
        except LoginError as error:
            self._not_authenticated(str(error))
            return
        if login.waits_for_token:
            self._compute_token(login, first)
        else:
            self._authenticate(login, SaslAuthenticateRequest(auth_bytes=first()))

    def _authenticate(self, login: SaslLogin, request: SaslAuthenticateRequest) -> None:
        assert self.peer is not None
        version = self.peer.highest_version(SaslAuthenticateRequest.API_KEY, _AUTHENTICATE)
        self._send_own(request, version, lambda response: self._token_answered(login, response))

    def _token_answered(self, login: SaslLogin, response: Any) -> None:
        try:
            compute = login.after_token(response)
        except LoginError as error:
            self._not_authenticated(str(error))
            return
        self._compute_token(login, compute)

    def _compute_token(self, login: SaslLogin, compute: Callable[[], bytes | None]) -> None:
        """Compute the next token and send it; None: the exchange is complete."""
        stream = self._stream

        def computed(token: bytes | None, error: Exception | None) -> None:
            if self._stream is not stream or stream is None:
                return  # the connection was lost meanwhile
            if error is not None:
                self._not_authenticated(f"{error}. Check {self._security.login_setting}")
            elif token is not None:
                self._authenticate(login, SaslAuthenticateRequest(auth_bytes=token))
            else:
                self._logged_in(login)

        self._links.compute(compute, computed)

    def _logged_in(self, login: SaslLogin) -> None:
        self._log_in_again_at_ms = None
        if login.lifetime_ms > 0:
            self._log_in_again_at_ms = self.timers.now_ms() + login.lifetime_ms * self._links.rng.uniform(*RENEWED_AT)
        self._ready()

    def _not_authenticated(self, reason: str) -> None:
        self._links.refused(self.address, reason)
        self._failed(reason)

    def _readable(self) -> None:
        stream = self._stream
        assert stream is not None
        try:
            for _ in range(MAX_READS_PER_EVENT):
                with self._reader.space() as space:
                    count = stream.transport.receive_into(space)
                    full = count == len(space)
                if not count:
                    self._failed("the peer has closed the connection")
                    return
                for frame in self._reader.received(count):
                    self._answered(self._conversation.response(frame))
                    if self._stream is not stream:
                        return  # a caller has closed the link
                if not full and not stream.transport.pending():
                    break
            else:
                if stream.transport.pending():  # decrypted data, which the selector does not see
                    self._links.later(lambda: self._continue_reading(stream))
        except TurnFirst:
            self._links.later(lambda: self._continue_reading(stream))
        except (BlockingIOError, InterruptedError):
            pass  # all that has arrived was received
        except (PeerError, KafkaError) as error:
            if not self._failures:  # otherwise each further attempt would log it
                logger.warning("%s violates the protocol: %s", self, error)
            self._failed(f"the peer violates the protocol: {error}")
            return
        except OSError as error:
            if isinstance(error, HandshakeFailed):
                self._links.refused(self.address, str(error))
            self._failed(f"the connection was lost: {error.strerror or error}")
            return
        self._pump()

    def _continue_reading(self, stream: Stream) -> None:
        if self._stream is stream:
            self._readable()

    def _answered(self, response: Any) -> None:
        outgoing = self._in_flight.popleft()
        if not isinstance(outgoing, Outgoing):
            outgoing(response)
            return
        self._has_answered = True
        self._failures = 0
        outgoing.complete(response, None)

    def _flush(self) -> None:
        stream, output = self._stream, self._output
        if stream is None:
            return
        try:
            while output:
                sent = stream.transport.send(output, 0)
                del output[:sent]
        except (BlockingIOError, InterruptedError):
            pass  # continued when the socket is writable
        except OSError as error:
            self._failed(f"the connection was lost: {error.strerror or error}")
            return
        if bool(output) is not self._waits_for_writable:
            self._waits_for_writable = bool(output)
            stream.on_writable(self._pump_writable if output else None)

    def _pump_writable(self) -> None:
        self._flush()
        self._pump()

    # -- failures ------------------------------------------------------------------------------------------------------

    def _failed(self, reason: str) -> None:
        """The connection, or the attempt to connect, has failed."""
        was_ready, has_answered = self._is_ready, self._has_answered
        if not has_answered:
            self._failures += 1
            settings = self.settings
            pause_ms = min(settings.backoff_ms << min(self._failures - 1, 16), settings.max_backoff_ms)
            # Many nodes may have lost the same peer, and must not all return at the same moment.
            jitter = self._links.rng.uniform(0.8, 1.2)
            self._cancel_pause()
            self._retry_timer = self.timers.call_after(pause_ms * jitter, self._pause_ended)
        waiting = list(self._unsent) if not was_ready else []
        self._disconnect(reason)
        if waiting:
            error = LinkError(f"{self}: {reason}")
            for outgoing in waiting:
                if outgoing in self._unsent:
                    self._unsent.remove(outgoing)
                outgoing.complete(None, error)
        self._links.later(self._pump)

    def _pause_ended(self) -> None:
        self._retry_timer = None
        self._pump()

    def _cancel_pause(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None

    def _disconnect(self, reason: str) -> None:
        """Close the connection; requests that were sent fail."""
        if self._setup_timer is not None:
            self._setup_timer.cancel()
            self._setup_timer = None
        if self._cancel_dial is not None:
            self._cancel_dial()
            self._cancel_dial = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._is_ready = False
        self._waits_for_writable = False
        self._output = bytearray()
        self._log_in_again_at_ms = None
        in_flight, self._in_flight = self._in_flight, deque()
        for outgoing in in_flight:
            if isinstance(outgoing, Outgoing):
                outgoing.complete(None, LinkError(f"{self}: {reason}", maybe_processed=True))

    def _fail_unsent(self, reason: str) -> None:
        unsent, self._unsent = self._unsent, deque()
        for outgoing in unsent:
            outgoing.complete(None, LinkError(f"{self}: {reason}"))


class Links:
    """The outgoing connections of one node, and what they share."""

    def __init__(
        self,
        dialer: Dialer,
        timers: TimerWheel,
        later: Callable[[Callable[[], None]], object],
        rng: Random,
        threads: JobExecutor | None = None,
    ) -> None:
        """``later`` calls back at the end of the iteration of the event loop. ``threads`` compute; None: nothing has to
        be computed in a thread."""
        self.dialer = dialer
        self.timers = timers
        self.later = later
        self.rng = rng
        self._threads = threads
        self._logged_at_ms: dict[Address, float] = {}
        self.staging = memoryview(bytearray(STAGING_BYTES))
        self._links: dict[Link, None] = {}  # a set in the order of creation: what is closed together has an order
        self._cut: frozenset[Address] = frozenset()

    @classmethod
    def over_tcp(
        cls,
        loop: asyncio.AbstractEventLoop,
        readiness: Readiness,
        turns: Turns,
        timers: TimerWheel,
        background: Background,
        later: Callable[[Callable[[], None]], object],
        rng: Random,
    ) -> Links:
        """Links that use TCP."""
        threads = background.executor(RESOLVERS)
        return cls(SocketDialer(loop, readiness, turns, threads), timers, later, rng, threads)

    def open(
        self,
        address: Address,
        client_id: str,
        settings: LinkSettings | None = None,
        security: LinkSecurity = PLAINTEXT,
    ) -> Link:
        """Create a link. It connects when it has a request to send."""
        link = Link(self, address, client_id, settings or LinkSettings(), security)
        self._links[link] = None
        return link

    def new_nonce(self) -> str:
        """Random printable characters without commas."""
        return b64encode(self.rng.randbytes(_NONCE_BYTES)).decode()

    def compute(self, work: Callable[[], bytes | None], done: Callable[[bytes | None, Exception | None], None]) -> None:
        """Run a step of an authentication in a thread. ``done`` receives its result or its error, later."""

        def ended(job: asyncio.Future[bytes | None]) -> None:
            if job.cancelled():
                done(None, OSError(errno.ECANCELED, "the server is stopping"))
                return
            error = job.exception()
            assert error is None or isinstance(error, Exception)
            done(None if error is not None else job.result(), error)

        if self._threads is not None:
            self._threads.run(work).add_done_callback(ended)
            return
        try:
            token = work()
        except SaslClientError as error:
            failure = error
            self.later(lambda: done(None, failure))
        else:
            self.later(lambda: done(token, None))

    def refused(self, address: Address, reason: str) -> None:
        """TLS or SASL has failed with this peer."""
        now_ms = self.timers.now_ms()
        if now_ms - self._logged_at_ms.get(address, -_LOGGED_EACH_MS) >= _LOGGED_EACH_MS:
            self._logged_at_ms[address] = now_ms
            logger.error("Cannot connect to %s: %s", address, reason)

    def cut(self, addresses: Iterable[Address]) -> None:
        """For tests: from now on, connections to these addresses are refused, and existing ones are lost."""
        self._cut = frozenset(addresses)
        for link in list(self._links):
            if link.address in self._cut:
                link.lose_connection()

    def dial(self, address: Address, done: Dialed, secure: Secure | None = None) -> Callable[[], None]:
        """See `Dialer.dial`."""
        if address not in self._cut:
            return self.dialer.dial(address, done, secure)
        attempts = [done]

        def refuse() -> None:
            if attempts:
                attempts.pop()(OSError(errno.ECONNREFUSED, "the connection is cut"))

        self.later(refuse)
        return attempts.clear

    def closed(self, link: Link) -> None:
        """Remove a closed link. Called by the link."""
        self._links.pop(link, None)

    def close(self) -> None:
        """Close all links."""
        for link in list(self._links):
            link.close()
