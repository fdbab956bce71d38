"""From a request frame to its response: decoding, the handler, encoding.

The table `server.apis` has the supported APIs. A route serves one version of one API: it has the compiled decoder and
encoder, and the handler. It is created when the first such request arrives. The module of the handler is imported at
that time, unless `load_ahead` has imported it. If an import fails because of the system (without a free descriptor, for
example), the request waits.

A small request is decoded, handled and answered in one piece. Long work runs in slices (`slices`): decoding a frame
above `SLICED_BYTES`, creating a route, and handlers that are generators, because their arrays may be long. The response
of such a handler is encoded in slices, too. Meanwhile no other request of that connection is served.

There are three kinds of failure:

- A client error is a `KafkaError` that the handler raises. It becomes the response that the API has for it.
- Bytes that cannot be parsed, and an API or a version that is not supported, close the connection, with one line in the
  log.
- An internal error is logged with its traceback and answered with UNKNOWN_SERVER_ERROR. Only that request fails.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from importlib import import_module
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from ...log.descriptors import FileRange
from ...protocol.api import ApiKey, request_class, request_header_version, response_class, response_header_version
from ...protocol.codec import decode_at, decoder, encoder, sliced_decoder, sliced_encoder
from ...protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ...protocol.messages.headers import RequestHeader
from ...protocol.steps import completed
from ..apis import APIS
from ..concurrency.slices import FEW_ELEMENTS, Slices, TooManyElementsError, release, within
from ..context import DEFERRED, ServedRequest
from ..network.huge_frames import HUGE_FRAME_BYTES
from .fetch_fast_path import FetchFastPath
from .produce_fast_path import LOWEST_VERSION as LOWEST_REPEATED_VERSION
from .produce_fast_path import ProduceFastPath

if TYPE_CHECKING:
    from ...protocol.schema import Message
    from ..apis import Api
    from ..authorizer import Authorizer
    from ..broker import Broker
    from ..concurrency.slices import Sliced
    from ..concurrency.timers import TimerWheel
    from ..context import RequestContext
    from ..network.connection import Connection
    from ..network.frames import Frame, Part
    from .client_quotas import ClientQuotas
    from .loop_time import LoopTime

logger = logging.getLogger(__name__)


SLICED_BYTES = 16 * 1024
"""Larger frames are decoded in slices. A frame of this size has at most as many elements, which take about 2 ms."""

# The maximum size of a request, except Produce. The decoded request and the response each take as much again. The
# number of elements is bounded separately; this bounds their strings and bytes. No larger request could succeed: group
# metadata and committed offsets are stored in records of at most `message.max.bytes` of their topic, and names have at
# most 249 characters.
_MAX_BYTES = 32 << 20

_IMPORT_RETRY_MS = 500

_FEW_STEPS = 16
"""A handler that is done after this many steps is served without slices, which cost ten microseconds."""


_HEADER = struct.Struct(">Ii")  # api key and version as one number, correlation id
_CLIENT_ID_LENGTH = struct.Struct(">h")
_LENGTH_AND_CORRELATION = struct.Struct(">ii")
_LENGTH_SIZE = 4  # not included in the length
_EMPTY_HEADER = bytes(_LENGTH_AND_CORRELATION.size)
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class ErrorCounts(Protocol):
    """The number of each error in the responses of a route; see `metrics.errors`."""

    def add(self, response: Message, /) -> None:
        """Count the errors in a response, also the absence of an error."""


Handler = Callable[[Any, "RequestContext", Any], Any]
"""Receives the broker, the context and the request."""


class Node(Protocol):
    """What the dispatcher needs of the first argument of the handlers."""

    slices: Slices
    timers: TimerWheel
    authorizer: Authorizer | None


class Route:
    """Serves one version of one API."""

    __slots__ = (
        "_encode",
        "_flexible_response",
        "api",
        "decode",
        "error_counts",
        "failed",
        "handle",
        "has_file_ranges",
        "header_version",
        "repeated",
        "repeats",
        "requests",
        "version",
    )

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.requests = 0
        """The number of requests, without those that a fast path has served."""
        self.repeated = 0
        """The number of requests that a fast path has served, without an error."""
        self.error_counts: ErrorCounts | None = None
        """The errors in responses, if they are counted."""
        key = api.key
        module = import_module(f"...handlers.{api.module}", __name__)
        suffix = f"_{key.name.lower()}"
        self.handle: Handler = getattr(module, f"handle{suffix}", None) or module.handle
        failed_in = getattr(module, f"failed{suffix}_in", None)  # for APIs whose error responses differ by version
        self.failed: Callable[..., Any] = (
            failed_in(version) if failed_in is not None else getattr(module, f"failed{suffix}", None) or module.failed
        )
        self.decode = decoder(request_class(key), version)
        self._encode = encoder(response_class(key), version)
        self._flexible_response = response_header_version(key, version) >= 1
        self.header_version = request_header_version(key, version)
        self.has_file_ranges = key is ApiKey.FETCH
        self.repeats = key is ApiKey.PRODUCE and version >= LOWEST_REPEATED_VERSION
        """Clients repeat such requests with few changes: see `produce_fast_path`."""

    def encode_response(self, correlation_id: int, response: Message) -> list[Part]:
        """Encode a response as a frame: buffers, and file ranges for records that come from a log."""
        # A flexible header ends with tagged fields, of which there are none.
        parts: list[Part] = [_EMPTY_HEADER, b"\0"] if self._flexible_response else [_EMPTY_HEADER]
        self._encode(response, parts)
        if self.has_file_ranges:
            size = sum(map(len, parts)) - _LENGTH_SIZE
            parts[0] = _LENGTH_AND_CORRELATION.pack(size, correlation_id)
            return _joined(parts)
        # One buffer is the cheapest to send and to count.
        frame = bytearray().join(parts)  # type: ignore[arg-type]
        _LENGTH_AND_CORRELATION.pack_into(frame, 0, len(frame) - _LENGTH_SIZE, correlation_id)
        return [frame]

    def encode_in_slices(self, correlation_id: int, response: Message) -> Sliced[list[Part]]:
        """Like `encode_response`, in slices."""
        encode = sliced_encoder(type(response), self.version)
        if self.error_counts is not None:
            self.error_counts.add(response)
        yield 0
        if self.has_file_ranges:
            ranges: list[Any] = []
            return (yield from self._encode_with_ranges(correlation_id, ranges, encode(response, ranges)))
        frame = bytearray(_EMPTY_HEADER + b"\0" if self._flexible_response else _EMPTY_HEADER)
        parts: list[Any] = []
        for _ in encode(response, parts):
            frame += b"".join(parts)
            parts.clear()
            yield 0
        frame += b"".join(parts)
        _LENGTH_AND_CORRELATION.pack_into(frame, 0, len(frame) - _LENGTH_SIZE, correlation_id)
        return [frame]

    def _encode_with_ranges(
        self, correlation_id: int, parts: list[Part], steps: Iterator[object]
    ) -> Sliced[list[Part]]:
        """Encode in ``steps``, which append to ``parts``. Buffers between two file ranges become one."""
        joined: list[Part] = []
        header = _EMPTY_HEADER + b"\0" if self._flexible_response else _EMPTY_HEADER
        frame = bytearray(header)  # since the last file range
        joined.append(frame)
        size = len(header) - _LENGTH_SIZE
        for _ in steps:
            size += sum(map(len, parts))
            frame = _add_joined(joined, frame, parts)
            parts.clear()
            yield 0
        size += sum(map(len, parts))
        _add_joined(joined, frame, parts)
        first = joined[0]
        assert isinstance(first, bytearray)
        _LENGTH_AND_CORRELATION.pack_into(first, 0, size, correlation_id)
        return joined

    def encode_or_fail(self, context: ServedRequest, response: Message) -> list[Part] | None:
        """Encode a response or, if that fails, an internal error. Returns None if the connection had to be closed."""
        try:
            if context.amendments is not None:
                context.apply_amendments(response)
            parts = self.encode_response(context.correlation_id, response)
            if self.error_counts is not None:
                self.error_counts.add(response)
            return parts
        except Exception:  # noqa: BLE001 - an internal error fails only its request
            response = self.fault_immediately(context)
        try:
            return self.encode_response(context.correlation_id, response)
        except Exception:
            logger.exception("The error response of %s v%d cannot be encoded", self.api.key.name, self.version)
            context.connection.close("it was impossible to encode a response", level=logging.ERROR)
            return None

    def fault_immediately(self, context: ServedRequest) -> Message:
        """Like `fault`, in one piece."""
        answer = self.fault(context)
        return completed(answer) if isinstance(answer, Generator) else answer

    def fault(self, context: ServedRequest) -> Message | Sliced[Message]:
        """The response to the current exception: UNKNOWN_SERVER_ERROR. The traceback is logged.

        The response is built in slices if error responses of the API may be long.
        """
        logger.exception(
            "%s v%d of %s from %s failed with an unexpected error", self.api.key.name, self.version, context.client_id,
            context.connection.peer
        )  # fmt: skip
        answer: Message | Sliced[Message] = self.failed(
            context.request,
            KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Internal server error; see the server log."),
        )
        return answer


class Dispatcher:
    """Decodes requests, calls their handlers, and encodes their responses."""

    def __init__(self, apis: Iterable[Api] = APIS) -> None:
        self._apis = {api.key: api for api in apis}
        self._broker: Any = None  # the first argument of the handlers
        self._routes: dict[int, Route] = {}
        self._slices: Slices | None = None
        # Set by `serve`:
        self._clock: Callable[[], float]  # of the slices
        self._new_produce_fast_path: Callable[[], ProduceFastPath]  # of a connection
        self._new_fetch_fast_path: Callable[[], FetchFastPath] | None = None
        self._authorizer: Authorizer | None = None
        self.quotas: ClientQuotas | None = None
        """The quotas of clients, if there are any."""
        self.loop_time: LoopTime | None = None
        """Measures requests, if a quota limits their time."""
        self._authorized: Callable[..., Sliced[Any]]  # if there is an authorizer
        self._waiting_apis: set[str] = set()  # those whose wait was logged
        self._new_error_counts: Callable[[ApiKey], ErrorCounts] | None = None

    def serve(self, broker: Broker) -> None:
        """Set the broker. To be called before the first frame."""
        self._serve(broker)
        if broker.authorizer is not None:
            from .authorization import authorized  # other servers do not need it

            self._authorized = authorized
        self._new_produce_fast_path = partial(ProduceFastPath, broker)
        self._new_fetch_fast_path = partial(
            FetchFastPath, broker.replicas, broker.fetch_sessions, broker.now_ms, lambda: broker.fetch_max_bytes
        )

    def serve_node(self, node: Node) -> None:
        """Set the controller that the handlers receive. To be called before the first frame."""
        self._serve(node)
        if node.authorizer is not None:
            from .controller_authorization import authorized  # other servers do not need it

            self._authorized = authorized

    def _serve(self, node: Node) -> None:
        self._authorizer = node.authorizer
        self._broker = node
        self._slices = node.slices
        self._clock = node.slices.clock

    def count_errors(self, new_error_counts: Callable[[ApiKey], ErrorCounts]) -> None:
        """Count the errors in responses. To be called before the first frame."""
        self._new_error_counts = new_error_counts

    @property
    def routes(self) -> list[Route]:
        """The versions of APIs that were requested. Another thread may call this."""
        return list(self._routes.values())

    def _add_route(self, route_key: int, route: Route) -> Route:
        if self._new_error_counts is not None:
            route.error_counts = self._new_error_counts(route.api.key)
        self._routes[route_key] = route
        return route

    def route_of(self, key: int, version: int) -> Sliced[Route | None]:
        """The route of an API of the table, for a request inside another one; None if this version is not served."""
        route_key = key << 16 | version
        route = self._routes.get(route_key)
        if route is None:
            api = self._served(route_key)
            if api is not None:
                route = self._add_route(route_key, (yield from _new_route(api, route_key)))
        return route

    def call(self, context: RequestContext, route: Any, request: Any) -> Any:
        """The result of the handler of such a request, or of its authorization."""
        if self._authorizer is not None:
            return self._authorized(self._broker, context, route, request)
        return route.handle(self._broker, context, request)

    def handle(self, connection: Connection, frame: Frame) -> ServedRequest | list[Part] | None:
        """Serve one frame; see `frames.FrameHandler`."""
        if self.loop_time is not None and self.loop_time.current is None:
            return self.loop_time.measure(lambda: self.handle(connection, frame))
        if len(frame) < 8:
            connection.close(f"a request of {len(frame)} bytes is shorter than the header of any request")
            return None
        route_key, correlation_id = _HEADER.unpack_from(frame)
        route = self._routes.get(route_key)
        if route is None or len(frame) > SLICED_BYTES:
            api = self._served(route_key)
            if api is None:
                return self._refuse(connection, route_key, correlation_id)
            context = ServedRequest(connection, route, correlation_id)
            # Creating a route takes several milliseconds. It is not done immediately, because one iteration of the
            # event loop may need many routes.
            return self._in_slices(context, self._read(context, route_key, frame), immediately=route is not None)
        if route.has_file_ranges and connection.fetch_fast_path is not None:
            parts = connection.fetch_fast_path.serve(route, correlation_id, frame)
            if parts is not None:
                return parts
        route.requests += 1
        try:
            client_id, offset = decode_client_id(frame, route.header_version)
            request, _ = route.decode(frame, offset)
        except MalformedMessage as error:
            connection.close(f"{route.api.key.name} v{route.version} cannot be decoded: {error}")
            return None
        context = ServedRequest(connection, route, correlation_id, client_id, request)
        if self.quotas is not None:
            self.quotas.meter(context, len(frame))
        answer = self._call(context, route, request)
        if type(answer) is GeneratorType:
            answer, waits_for = self._first_steps(context, route, answer)
            if waits_for:
                return self._in_slices(context, self._finish_later(context, route, answer, frame))
        if answer is None:
            return None
        if answer is DEFERRED:
            if context.parts is not None:
                return context.parts  # it may be complete already
            if route.repeats:
                self._learn_later(context, route, frame)
            return context
        if type(answer) is GeneratorType:
            return self._in_slices(context, self._finish(context, route, answer, frame))
        parts = route.encode_or_fail(context, answer)
        if route.repeats and parts is not None:
            self._learn(context, route, frame, answer)
        elif route.has_file_ranges and parts is not None and self._may_repeat(context):
            fast_path = connection.fetch_fast_path
            if fast_path is None and self._new_fetch_fast_path is not None:
                fast_path = connection.fetch_fast_path = self._new_fetch_fast_path()
            if fast_path is not None:
                fast_path.learn(route, frame, offset, request, answer)
        return parts

    def _call(self, context: ServedRequest, route: Route, request: Message) -> Any:
        """Call the handler. Returns its result, or the response to the exception that it raises."""
        try:
            if self._authorizer is not None:
                return self._authorized(self._broker, context, route, request)
            return route.handle(self._broker, context, request)
        except KafkaError as error:
            return route.failed(request, error)
        except Exception:  # noqa: BLE001 - an internal error fails only its request
            return route.fault(context)

    def _first_steps(self, context: ServedRequest, route: Route, steps: Sliced[Any]) -> tuple[Any, int]:
        """Run the first steps of a handler. Returns its result if they are enough, which is usual, or the other steps.

        The number is WAITS or SUSPENDED if the other steps must wait, otherwise 0.
        """
        assert self._slices is not None
        try:
            clock = self._clock
            until = clock() + self._slices.first_slice_ms / 1000
            for _ in range(_FEW_STEPS):
                more = next(steps)
                if more < 0:
                    return steps, more
                if clock() >= until:
                    break
        except StopIteration as end:
            return end.value, 0
        except KafkaError as error:
            return route.failed(context.request, error), 0
        except Exception:  # noqa: BLE001 - as in `_call`
            return route.fault(context), 0
        return steps, 0

    def _may_repeat(self, context: ServedRequest) -> bool:
        """Whether later requests like this one may be served by a fast path. Not if a part of the request was refused,
        if ACLs have changed since it was allowed, or if a quota applies."""
        if self.quotas is not None and self.quotas.limits(context):
            return False
        return self._authorizer is None or context.acl_epoch == self._authorizer.epoch

    def _learn(self, context: ServedRequest, route: Route, frame: Frame, answer: Any) -> None:
        if not self._may_repeat(context):
            return
        fast_path = context.connection.produce_fast_path
        if fast_path is None:
            fast_path = context.connection.produce_fast_path = self._new_produce_fast_path()
        fast_path.learn(route, frame, context.request, answer)

    def _learn_later(self, context: ServedRequest, route: Route, frame: Frame) -> None:
        """Learn from a request when it has its response. The memory of a huge frame may be freed before."""
        if len(frame) < HUGE_FRAME_BYTES:
            context.amend(partial(self._learn, context, route, frame))

    # -- in slices -----------------------------------------------------------------------------------------------------

    def _in_slices(
        self, context: ServedRequest, work: Sliced[None], *, immediately: bool = True
    ) -> ServedRequest | list[Part] | None:
        """Begin the work, which ends with a response or with a pending request."""
        assert self._slices is not None
        if self._slices.begin(_ending_work(context, work), context, immediately=immediately):
            return context if context.parts is None else context.parts
        context.connection.begin_work()
        if context.parts is not None:
            return context.parts  # the remaining work only frees the message
        context.keeps_request = True
        return context

    def _read(self, context: ServedRequest, route_key: int, frame: Frame) -> Sliced[None]:
        """Decode a request, call its handler and respond."""
        connection = context.connection
        route = self._routes.get(route_key)
        try:
            if len(frame) > _MAX_BYTES and route_key >> 16 != ApiKey.PRODUCE:
                key, version = ApiKey(route_key >> 16), route_key & 0xFFFF
                connection.close(
                    f"{key.name} v{version} has {len(frame)} bytes, but the limit for all requests except Produce is "
                    f"{_MAX_BYTES}: send several smaller requests"
                )
                return
            if route is None:
                api = self._apis[ApiKey(route_key >> 16)]
                route = self._add_route(route_key, (yield from _new_route(api, route_key)))
            route.requests += 1
            client_id, offset = decode_client_id(frame, route.header_version)
            decode = sliced_decoder(request_class(route.api.key), route.version)
            (request, _), elements = yield from within(decode(frame, offset), route.api.max_elements)
        except MalformedMessage as error:
            key, version = ApiKey(route_key >> 16), route_key & 0xFFFF
            connection.close(f"{key.name} v{version} cannot be decoded: {error}")
            return
        except TooManyElementsError as error:
            key, version = ApiKey(route_key >> 16), route_key & 0xFFFF
            connection.close(
                f"{key.name} v{version} has {error.elements} or more elements in its arrays, but the limit is "
                f"{self._apis[key].max_elements}: send several smaller requests"
            )
            return
        except OSError as error:  # an import failed: there is no route that could respond
            self._read_later(context, route_key, frame, error)
            return
        except Exception:
            logger.exception("Reading a request from %s failed with an unexpected error", connection.peer)
            connection.close("its request could not be read", level=logging.ERROR)
            return
        context.read(route, client_id, request)
        context.is_long = elements > FEW_ELEMENTS and not (route.repeats or route.has_file_ranges)
        if self.quotas is not None:
            self.quotas.meter(context, len(frame))
        answer = self._call(context, route, request)
        if not route.repeats:
            frame = b""  # the decoded request does not refer to it
            context.keeps_request = False
            context.release_memory()
        yield from self._finish(context, route, answer, frame)

    def _read_later(self, context: ServedRequest, route_key: int, frame: Frame, error: OSError) -> None:
        """Retry after a pause. The request is pending meanwhile, so the end of the connection is noticed."""
        assert self._broker is not None
        name = ApiKey(route_key >> 16).name
        if name not in self._waiting_apis:
            self._waiting_apis.add(name)
            logger.warning("Requests of %s wait until their handler can be loaded: %s", name, error)

        def again() -> None:
            assert self._slices is not None
            self._slices.begin(_ending_work(context, self._read(context, route_key, frame)), context)

        self._broker.timers.call_after(_IMPORT_RETRY_MS, again)

    def completes_earlier(self, frame: Frame) -> bool:
        """See `frames.FrameHandler`."""
        return not self._apis[ApiKey(int.from_bytes(frame[:2], "big"))].may_wait_behind

    def refuse(self, frame: Frame, error: KafkaError, respond: Callable[[list[Part] | None], None]) -> None:
        """See `frames.FrameHandler`. A large request has no response: it would have to be decoded in slices."""
        assert self._slices is not None
        self._slices.begin_shielded(self._refuse_later(frame, error, respond))

    def _refuse_later(
        self, frame: Frame, error: KafkaError, respond: Callable[[list[Part] | None], None]
    ) -> Sliced[None]:
        parts: list[Part] | None = None
        try:
            route_key, correlation_id = _HEADER.unpack_from(frame)
            route = yield from self.route_of(route_key >> 16, route_key & 0xFFFF)
            if route is not None and len(frame) <= SLICED_BYTES:
                _, offset = decode_client_id(frame, route.header_version)
                request, _ = route.decode(frame, offset)
                if route.api.key is not ApiKey.PRODUCE or request.acks:
                    answer = route.failed(request, error)
                    if isinstance(answer, Generator):
                        answer = yield from answer
                    parts = route.encode_response(correlation_id, answer)
        except (MalformedMessage, OSError) as problem:  # an import fails if there is no free descriptor
            logger.debug("A request that is refused has no response: %s", problem)
        except Exception:
            logger.exception("Building the response to a request that is refused failed with an unexpected error")
        respond(parts)

    def finish(self, context: ServedRequest, answer: Any) -> None:
        """Complete a pending request; see `frames.FrameHandler`."""
        assert self._slices is not None
        self._slices.begin(self._finish(context, context.route, answer), context)

    def _finish_later(self, context: ServedRequest, route: Route, handler: Sliced[Any], frame: Frame) -> Sliced[None]:
        """Continue a handler that waits for other work or is suspended.

        If it needs few more steps, its response is encoded in one piece.
        """
        # Repeat the step as part of this work: a `SlicedFuture` resumes the work that has requested its result.
        answer, waits_for = self._first_steps(context, route, handler)
        while waits_for:
            yield waits_for
            answer, waits_for = self._first_steps(context, route, answer)
        if answer is None or answer is DEFERRED or type(answer) is GeneratorType:
            yield from self._finish(context, route, answer, frame)
        else:
            context.reply(answer)

    def _finish(self, context: ServedRequest, route: Route, answer: Any, frame: Frame = b"") -> Sliced[None]:
        """Process the result of a handler, and respond."""
        sliced = type(answer) is GeneratorType
        if sliced:
            answer = yield from self._complete(context, route, answer)
        if answer is DEFERRED:
            if route.repeats and frame and context.parts is None:
                self._learn_later(context, route, frame)
            return
        if answer is None:
            context.reply_nothing()
            return
        try:
            if context.amendments is not None:
                context.apply_amendments(answer)
            parts = yield from route.encode_in_slices(context.correlation_id, answer)
        except Exception:  # noqa: BLE001 - as in `Route.encode_or_fail`
            context.is_long = False
            context.reply(route.fault_immediately(context))
            return
        if route.repeats:
            self._learn(context, route, frame, answer)
        context.reply_encoded(parts)
        if sliced:
            yield from release(answer)
            yield from release(context.request)

    @staticmethod
    def _complete(context: ServedRequest, route: Route, handler: Sliced[Any]) -> Sliced[Any]:
        try:
            return (yield from handler)
        except KafkaError as error:
            answer = route.failed(context.request, error)
        except Exception:  # noqa: BLE001 - as in `_call`
            answer = route.fault(context)
        return (yield from answer) if type(answer) is GeneratorType else answer

    def _served(self, route_key: int) -> Api | None:
        """The API's row of the table, if it has this version."""
        api = self._apis.get(route_key >> 16)  # type: ignore[call-overload]
        if api is None or not max(api.min_version, api.lowest_served) <= route_key & 0xFFFF <= api.max_version:
            return None
        row: Api = api
        return row

    # -- rare cases ----------------------------------------------------------------------------------------------------

    def _refuse(self, connection: Connection, route_key: int, correlation_id: int) -> list[Part] | None:
        key, version = route_key >> 16, route_key & 0xFFFF
        if key == _API_VERSIONS:
            # The client is newer than this server. The response has version 0, which the client can read, and lists the
            # supported versions (KIP-511).
            from ..handlers.api_versions import unsupported_version_response

            route = Route(self._apis[ApiKey.API_VERSIONS], 0)
            response = unsupported_version_response(self._apis.values(), self._broker)
            return route.encode_response(correlation_id, response)
        name = ApiKey(key).name if key in ApiKey.__members__.values() else "unknown"
        api = self._apis.get(key)  # type: ignore[call-overload]
        served = (
            "this API is not served"
            if api is None
            else f"the served versions are {max(api.min_version, api.lowest_served)} to {api.max_version}"
        )
        connection.close(f"API key {key} ({name}) version {version} was requested, but {served}")
        return None


def _new_route(api: Api, route_key: int) -> Sliced[Route]:
    """Import and compile the parts of a route in separate steps: each takes some milliseconds."""
    key, version = ApiKey(route_key >> 16), route_key & 0xFFFF
    import_module(f"...handlers.{api.module}", __name__)
    yield 0
    decoder(request_class(key), version)
    yield 0
    encoder(response_class(key), version)
    yield 0
    return Route(api, version)


def _ending_work(context: ServedRequest, work: Sliced[None]) -> Sliced[None]:
    """The work with its cleanup, which also runs if the work is closed before its first step."""
    steps = _with_end(context, work)
    next(steps)
    return steps


def _with_end(context: ServedRequest, work: Sliced[None]) -> Sliced[None]:
    try:
        yield 0
        yield from work
    finally:
        if context.cancelled:
            context.release_memory()
        context.connection.end_work()


def _add_joined(joined: list[Part], frame: bytearray, parts: list[Any]) -> bytearray:
    """Add ``parts`` to ``joined``, which ends with the buffer ``frame``. Returns the buffer at the new end."""
    for part in parts:
        if isinstance(part, FileRange):
            frame = bytearray()
            joined += (part, frame)
        else:
            frame += part
    return frame


def _joined(parts: list[Part]) -> list[Part]:
    """The same parts, with one buffer before, between and after file ranges."""
    joined: list[Part] = []
    first = 0
    for index, part in enumerate(parts):
        if isinstance(part, FileRange):
            joined += (b"".join(parts[first:index]), part)  # type: ignore[arg-type]
            first = index + 1
    if first < len(parts):
        joined.append(b"".join(parts[first:]))  # type: ignore[arg-type]
    return joined


def decode_client_id(frame: Frame, header_version: int) -> tuple[str | None, int]:
    """The client id, and the position of the request's body.

    RequestHeader has the versions 1 and 2; version 2 adds tagged fields.
    """
    if len(frame) < 10:
        raise MalformedMessage("the frame ends in the header", len(frame))
    (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, 8)
    if length < 0:
        client_id, offset = None, 10
    else:
        offset = 10 + length
        if offset > len(frame):
            raise MalformedMessage("the client id extends past the end of the frame", 8)
        client_id = frame[10:offset].decode(errors="replace")  # as Apache Kafka decodes it
    if header_version < 2:
        return client_id, offset
    if offset >= len(frame):
        raise MalformedMessage("the frame ends in the header", offset)
    if frame[offset] == 0:
        return client_id, offset + 1
    _, offset = decode_at(RequestHeader, frame, 2, 0)  # unknown tagged fields
    return client_id, offset
