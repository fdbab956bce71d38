"""Frames become requests, requests find their handler, answers become bytes.

`APIS` is the one table of what this server serves: ApiVersions, docs/apis.md and the tests come from it. Nothing is
in it that is not done. A route is what serves one version of one API: the compiled decoder and encoder, and the
handler; it is made when the first such request comes, and the module of the handler is imported then, unless
`load_ahead` has done so. While an import fails because the system has no descriptor, say, the request waits.

A small request is decoded, handled and answered in one piece. In slices (`slices`) goes what may be long: reading a
frame above `SLICED_BYTES`, making a route, and handlers that are generators, because their arrays may be long; then the
answer is encoded in slices, too. Meanwhile no other request of that connection is served.

Three kinds of failure, three answers. The client's mistake is a `KafkaError` of the handler and becomes the answer
that the API has for it. Bytes that cannot be parsed, an API or a version that is not served: the connection is
closed, with one line in the log. Our own mistake: logged with its traceback, answered UNKNOWN_SERVER_ERROR, and only
that request fails.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..log.descriptors import FileRange
from ..protocol.api import ApiKey, request_class, request_header_version, response_class, response_header_version
from ..protocol.codec import decode_at, decoder, encoder, sliced_decoder, sliced_encoder
from ..protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ..protocol.messages.headers import RequestHeader
from .express import LOWEST_VERSION as LOWEST_EXPRESS_VERSION
from .express import Express
from .request import PARKED, RequestContext
from .slices import SHORT_SLICE_MS, Slices, TooManyElementsError, release, within

if TYPE_CHECKING:
    from ..protocol.schema import Message
    from .broker import Broker
    from .connection import Connection, Part
    from .slices import Sliced

logger = logging.getLogger(__name__)


SLICED_BYTES = 16 * 1024
"""Frames above are decoded in slices. One of this size has at most so many elements, which take about 2 ms."""

# How many elements the arrays of one request may have, all together; more close its connection.
_IN_SLICES = 250_000  # the handler is a generator
_PARTITIONS = 50_000  # the controller's: 10,000 partitions with their replicas
_IN_ONE_PIECE = 10_000

_IMPORT_RETRY_MS = 500

_FEW_STEPS = 16
"""A handler that is done after so many steps is served like any other: slices cost ten microseconds."""


class Api(NamedTuple):
    """A row of the table: the versions that ApiVersions shows, the lowest that is served, and where the handler is."""

    key: ApiKey
    min_version: int
    max_version: int
    module: str  # below server.handlers; has handle() or handle_<api>(), and failed() or failed_<api>()
    max_elements: int = _IN_ONE_PIECE
    lowest_served: int = -1  # above min_version only where Apache Kafka advertises more than it serves


APIS: tuple[Api, ...] = (
    Api(ApiKey.PRODUCE, 0, 13, "produce", lowest_served=3),
    Api(ApiKey.FETCH, 4, 18, "fetch", _PARTITIONS),
    Api(ApiKey.LIST_OFFSETS, 1, 11, "list_offsets", _IN_SLICES),
    Api(ApiKey.METADATA, 0, 13, "metadata", _IN_SLICES),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, "group_offsets", _IN_SLICES),
    Api(ApiKey.OFFSET_FETCH, 1, 10, "group_offsets", _IN_SLICES),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, "find_coordinator", _IN_SLICES),
    Api(ApiKey.JOIN_GROUP, 0, 9, "group_members"),
    Api(ApiKey.HEARTBEAT, 0, 4, "group_members"),
    Api(ApiKey.LEAVE_GROUP, 0, 5, "group_members"),
    Api(ApiKey.SYNC_GROUP, 0, 5, "group_members"),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, "group_admin", _IN_SLICES),
    Api(ApiKey.LIST_GROUPS, 0, 5, "group_admin"),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, "security"),
    Api(ApiKey.API_VERSIONS, 0, 4, "api_versions"),
    Api(ApiKey.CREATE_TOPICS, 2, 7, "topics", _PARTITIONS),
    Api(ApiKey.DELETE_TOPICS, 1, 6, "topics"),
    Api(ApiKey.DELETE_RECORDS, 0, 2, "delete_records", _IN_SLICES),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, "init_producer_id"),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "offset_for_leader_epoch", _IN_SLICES),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "transactions"),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "transactions"),
    Api(ApiKey.END_TXN, 0, 5, "transactions"),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, "transaction_markers"),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "transaction_offsets"),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, "security"),
    Api(ApiKey.CREATE_ACLS, 1, 3, "security"),
    Api(ApiKey.DELETE_ACLS, 1, 3, "security"),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "configs", _IN_SLICES),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, "configs"),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, "alter_replica_log_dirs"),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, "log_dirs", _IN_SLICES),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, "topics", _PARTITIONS),
    Api(ApiKey.DELETE_GROUPS, 0, 2, "group_admin"),
    Api(ApiKey.ELECT_LEADERS, 0, 2, "reassignment", _PARTITIONS),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "configs"),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, "reassignment", _PARTITIONS),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, "reassignment", _PARTITIONS),
    Api(ApiKey.OFFSET_DELETE, 0, 0, "group_offsets"),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, "security"),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, "security"),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, "cluster"),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, "cluster"),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "cluster"),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "describe_producers", _IN_SLICES),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, "cluster"),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "transaction_admin", _IN_SLICES),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, "transaction_admin"),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "group_members", _PARTITIONS),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "group_admin", _IN_SLICES),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "configs"),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "describe_topic_partitions", _IN_SLICES),
)

_BY_KEY = {api.key: api for api in APIS}
_HEADER = struct.Struct(">Ii")  # api key and version as one number, correlation id
_CLIENT_ID_LENGTH = struct.Struct(">h")
_LENGTH_AND_CORRELATION = struct.Struct(">ii")
_LENGTH_SIZE = 4  # which the length does not count
_EMPTY_HEADER = bytes(_LENGTH_AND_CORRELATION.size)
_API_VERSIONS = int(ApiKey.API_VERSIONS)

Handler = Callable[..., Any]


class Route:
    """What serves one version of one API."""

    __slots__ = (
        "_encode",
        "_flexible_answer",
        "_has_file_ranges",
        "api",
        "decode",
        "failed",
        "handle",
        "header_version",
        "repeats",
        "version",
    )

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        key = api.key
        module = import_module(f"..handlers.{api.module}", __name__)
        suffix = f"_{key.name.lower()}"
        self.handle: Handler = getattr(module, f"handle{suffix}", None) or module.handle
        self.failed: Handler = getattr(module, f"failed{suffix}", None) or module.failed
        self.decode = decoder(request_class(key), version)
        self._encode = encoder(response_class(key), version)
        self._flexible_answer = response_header_version(key, version) >= 1
        self.header_version = request_header_version(key, version)
        self._has_file_ranges = key is ApiKey.FETCH
        self.repeats = key is ApiKey.PRODUCE and version >= LOWEST_EXPRESS_VERSION
        """Clients send such requests again and again with little that is new: see `server.express`."""

    def encode_answer(self, correlation_id: int, response: Message) -> list[Part]:
        """The frame of an answer: buffers, and file ranges where records come from a log."""
        # No tagged fields in a flexible header.
        parts: list[Part] = [_EMPTY_HEADER, b"\0"] if self._flexible_answer else [_EMPTY_HEADER]
        self._encode(response, parts)
        if self._has_file_ranges:
            size = sum(map(len, parts)) - _LENGTH_SIZE
            parts[0] = _LENGTH_AND_CORRELATION.pack(size, correlation_id)
            return _joined(parts)
        # One piece is the cheapest to send, and to count.
        frame = bytearray().join(parts)  # type: ignore[arg-type]
        _LENGTH_AND_CORRELATION.pack_into(frame, 0, len(frame) - _LENGTH_SIZE, correlation_id)
        return [frame]

    def encode_in_slices(self, correlation_id: int, response: Message) -> Sliced[list[Part]]:
        """As `encode_answer`."""
        if self._has_file_ranges:
            return self.encode_answer(correlation_id, response)
        encode = sliced_encoder(type(response), self.version)
        yield 0
        frame = bytearray(_EMPTY_HEADER + b"\0" if self._flexible_answer else _EMPTY_HEADER)
        parts: list[Any] = []
        for _ in encode(response, parts):
            frame += b"".join(parts)
            parts.clear()
            yield 0
        frame += b"".join(parts)
        _LENGTH_AND_CORRELATION.pack_into(frame, 0, len(frame) - _LENGTH_SIZE, correlation_id)
        return [frame]

    def encode_or_fail(self, context: RequestContext, response: Message) -> list[Part] | None:
        """The frame of an answer, or of our own fault if it cannot be encoded; None if the connection had to be
        closed."""
        try:
            return self.encode_answer(context.correlation_id, response)
        except Exception:  # noqa: BLE001 - our own mistakes fail one request alone
            response = self.fault(context)
        try:
            return self.encode_answer(context.correlation_id, response)
        except Exception:
            logger.exception("%s v%d cannot even say that it failed", self.api.key.name, self.version)
            context.connection.close("its request could not be answered", level=logging.ERROR)
            return None

    def fault(self, context: RequestContext) -> Message:
        """The answer to what raised the present exception: UNKNOWN_SERVER_ERROR, and a traceback in the log."""
        logger.exception(
            "%s v%d of %s from %s failed by our own fault", self.api.key.name, self.version, context.client_id,
            context.connection.peer
        )  # fmt: skip
        answer: Message = self.failed(
            context.request,
            KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The server has made a mistake; its log says more."),
        )
        return answer


class Dispatcher:
    """The way of every request from its bytes to its handler and back."""

    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._routes: dict[int, Route] = {}
        self._tasks: set[Any] = set()
        self._slices: Slices | None = None
        self._waiting_apis: set[str] = set()  # those for which the log says so

    def serve(self, broker: Broker) -> None:
        """Serve with this broker; no frame may come before."""
        self._broker = broker
        self._slices = broker.slices

    def handle(self, connection: Connection, frame: bytes | bytearray) -> RequestContext | list[Part] | None:
        """Serve one frame; see `connection.FrameHandler`."""
        if len(frame) < 8:
            connection.close(f"a request of {len(frame)} bytes is shorter than the header of any request")
            return None
        route_key, correlation_id = _HEADER.unpack_from(frame)
        route = self._routes.get(route_key)
        if route is None or len(frame) > SLICED_BYTES:
            api = _served(route_key)
            if api is None:
                return self._refuse(connection, route_key, correlation_id)
            context = RequestContext(connection, route, correlation_id)
            # Making a route takes several milliseconds: never at once, many may be asked for in one turn.
            return self._in_slices(context, self._read(context, route_key, frame), at_once=route is not None)
        try:
            client_id, offset = _decode_client_id(frame, route.header_version)
            request, _ = route.decode(frame, offset)
        except MalformedMessage as error:
            connection.close(f"{route.api.key.name} v{route.version} cannot be read: {error}")
            return None
        context = RequestContext(connection, route, correlation_id, client_id, request)
        answer = self._call(context, route, request)
        if type(answer) is GeneratorType:
            answer = self._first_steps(context, route, answer)
        if answer is None:
            return None
        if answer is PARKED:
            return context if context.parts is None else context.parts  # it may have been answered by now
        if type(answer) is GeneratorType:
            return self._in_slices(context, self._finish(context, route, answer))
        if type(answer) is CoroutineType:
            self._run(context, route, answer)
            return context
        parts = route.encode_or_fail(context, answer)
        if route.repeats and parts is not None:
            self._learn(context, route, frame, answer)
        return parts

    def _call(self, context: RequestContext, route: Route, request: Message) -> Any:
        """What the handler returns, or the answer to what it raises."""
        try:
            return route.handle(self._broker, context, request)
        except KafkaError as error:
            return route.failed(request, error)
        except Exception:  # noqa: BLE001 - see the module: our own mistakes fail one request alone
            return route.fault(context)

    def _first_steps(self, context: RequestContext, route: Route, steps: Sliced[Any]) -> Any:
        """What a handler returns that needs few steps, which is the rule; otherwise the rest of them."""
        try:
            until = time.perf_counter() + SHORT_SLICE_MS / 1000
            for _ in range(_FEW_STEPS):
                next(steps)
                if time.perf_counter() >= until:
                    break
        except StopIteration as end:
            return end.value
        except KafkaError as error:
            return route.failed(context.request, error)
        except Exception:  # noqa: BLE001 - as in `_call`
            return route.fault(context)
        return steps

    def _learn(self, context: RequestContext, route: Route, frame: bytes | bytearray, answer: Any) -> None:
        express = context.connection.express
        if express is None:
            assert self._broker is not None
            express = context.connection.express = Express(self._broker)
        express.learn(route, frame, context.request, answer)

    # -- in slices -----------------------------------------------------------------------------------------------------

    def _in_slices(
        self, context: RequestContext, work: Sliced[None], *, at_once: bool = True
    ) -> RequestContext | list[Part] | None:
        """Begin the work, which ends with an answer or with a request that is parked."""
        assert self._slices is not None
        if self._slices.begin(_ending_work(context, work), context, at_once=at_once):
            return context if context.parts is None else context.parts
        context.connection.begin_work()
        if context.parts is not None:
            return context.parts  # what is left is to release the message
        context.keeps_request = True
        return context

    def _read(self, context: RequestContext, route_key: int, frame: bytes | bytearray) -> Sliced[None]:
        """Decode a request, handle it and answer."""
        connection = context.connection
        route = self._routes.get(route_key)
        try:
            if route is None:
                route = self._routes[route_key] = yield from _new_route(route_key)
            client_id, offset = _decode_client_id(frame, route.header_version)
            decode = sliced_decoder(request_class(route.api.key), route.version)
            request, _ = yield from within(decode(frame, offset), route.api.max_elements)
        except MalformedMessage as error:
            key, version = ApiKey(route_key >> 16), route_key & 0xFFFF
            connection.close(f"{key.name} v{version} cannot be read: {error}")
            return
        except TooManyElementsError as error:
            key, version = ApiKey(route_key >> 16), route_key & 0xFFFF
            connection.close(
                f"{key.name} v{version} has {error.elements} or more elements in its arrays, and the limit is "
                f"{_BY_KEY[key].max_elements}: send several smaller requests"
            )
            return
        except OSError as error:  # an import: there is nothing to answer with
            self._read_later(context, route_key, frame, error)
            return
        except Exception:
            logger.exception("A request of %s could not be read", connection.peer)
            connection.close("its request could not be read", level=logging.ERROR)
            return
        context.read(route, client_id, request)
        answer = self._call(context, route, request)
        if not route.repeats:
            frame = b""  # what was decoded does not refer to it
            context.keeps_request = False
            context.give_back()
        yield from self._finish(context, route, answer, frame)

    def _read_later(self, context: RequestContext, route_key: int, frame: bytes | bytearray, error: OSError) -> None:
        """Read again after a pause, like a request that was parked: the end of the connection is seen meanwhile."""
        assert self._broker is not None
        name = ApiKey(route_key >> 16).name
        if name not in self._waiting_apis:
            self._waiting_apis.add(name)
            logger.warning("Requests of %s wait until what serves them can be loaded: %s", name, error)

        def again() -> None:
            assert self._slices is not None
            self._slices.begin(_ending_work(context, self._read(context, route_key, frame)), context)

        self._broker.timers.call_after(_IMPORT_RETRY_MS, again)

    def finish(self, context: RequestContext, steps: Sliced[Any]) -> None:
        """Answer a request that was parked; see `connection.FrameHandler`."""
        assert self._slices is not None
        self._slices.begin(self._finish(context, context.route, steps), context)

    def _finish(
        self, context: RequestContext, route: Route, answer: Any, frame: bytes | bytearray = b""
    ) -> Sliced[None]:
        """Go on with what a handler has returned, and answer."""
        sliced = type(answer) is GeneratorType
        if sliced:
            answer = yield from self._complete(context, route, answer)
        if answer is PARKED:
            return
        if answer is None:
            context.reply_nothing()
            return
        if type(answer) is CoroutineType:
            self._run(context, route, answer)
            return
        try:
            parts = yield from route.encode_in_slices(context.correlation_id, answer)
        except Exception:  # noqa: BLE001 - as in `Route.encode_or_fail`
            context.reply(route.fault(context))
            return
        if route.repeats:
            self._learn(context, route, frame, answer)
        context.reply_encoded(parts)
        if sliced:
            yield from release(answer)
            yield from release(context.request)

    @staticmethod
    def _complete(context: RequestContext, route: Route, handler: Sliced[Any]) -> Sliced[Any]:
        try:
            return (yield from handler)
        except KafkaError as error:
            return route.failed(context.request, error)
        except Exception:  # noqa: BLE001 - as in `_call`
            return route.fault(context)

    # -- what is rare --------------------------------------------------------------------------------------------------

    def _refuse(self, connection: Connection, route_key: int, correlation_id: int) -> list[Part] | None:
        key, version = route_key >> 16, route_key & 0xFFFF
        if key == _API_VERSIONS:
            # The client is newer than we are: tell it in version 0, which it can read, what we have (KIP-511).
            from .handlers.api_versions import unsupported_version_answer

            route = Route(_BY_KEY[ApiKey.API_VERSIONS], 0)
            return route.encode_answer(correlation_id, unsupported_version_answer())
        name = ApiKey(key).name if key in ApiKey.__members__.values() else "unknown"
        api = _BY_KEY.get(key)  # type: ignore[call-overload]
        served = (
            "not served"
            if api is None
            else f"served from {max(api.min_version, api.lowest_served)} to {api.max_version}"
        )
        connection.close(f"API key {key} ({name}) version {version} was asked for, which is {served}")
        return None

    def _run(self, context: RequestContext, route: Route, coroutine: Coroutine[Any, Any, Message]) -> None:
        """Serve a request that has to await something: a task, so only for what is rare."""
        import asyncio

        async def serve() -> None:
            try:
                answer = await coroutine
            except KafkaError as error:
                answer = route.failed(context.request, error)
            except Exception:  # noqa: BLE001 - as above
                answer = route.fault(context)
            context.reply(answer)

        task = asyncio.get_running_loop().create_task(serve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _served(route_key: int) -> Api | None:
    """The row of the table, if it has this version."""
    api = _BY_KEY.get(route_key >> 16)  # type: ignore[call-overload]
    if api is None or not max(api.min_version, api.lowest_served) <= route_key & 0xFFFF <= api.max_version:
        return None
    row: Api = api
    return row


def _new_route(route_key: int) -> Sliced[Route]:
    """Import and compile what a route needs, one thing after the other: each takes some milliseconds."""
    key, version = ApiKey(route_key >> 16), route_key & 0xFFFF
    import_module(f"..handlers.{_BY_KEY[key].module}", __name__)
    yield 0
    decoder(request_class(key), version)
    yield 0
    encoder(response_class(key), version)
    yield 0
    return Route(_BY_KEY[key], version)


def _ending_work(context: RequestContext, work: Sliced[None]) -> Sliced[None]:
    """The work, and what ends it, also when it is closed before its first step."""
    steps = _with_end(context, work)
    next(steps)
    return steps


def _with_end(context: RequestContext, work: Sliced[None]) -> Sliced[None]:
    try:
        yield 0
        yield from work
    finally:
        if context.abandoned:
            context.give_back()
        context.connection.end_work()


def _joined(parts: list[Part]) -> list[Part]:
    """The same with one buffer before, between and after file ranges."""
    joined: list[Part] = []
    first = 0
    for index, part in enumerate(parts):
        if isinstance(part, FileRange):
            joined += (b"".join(parts[first:index]), part)  # type: ignore[arg-type]
            first = index + 1
    if first < len(parts):
        joined.append(b"".join(parts[first:]))  # type: ignore[arg-type]
    return joined


def _decode_client_id(frame: bytes | bytearray, header_version: int) -> tuple[str | None, int]:
    """The client id and where the request begins (RequestHeader versions 1 and 2; version 2 adds tagged fields)."""
    if len(frame) < 10:
        raise MalformedMessage("the frame ends in the header", len(frame))
    (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, 8)
    if length < 0:
        client_id, offset = None, 10
    else:
        offset = 10 + length
        if offset > len(frame):
            raise MalformedMessage("the client id goes past the end of the frame", 8)
        client_id = frame[10:offset].decode(errors="replace")  # as Apache Kafka reads it
    if header_version < 2:
        return client_id, offset
    if offset >= len(frame):
        raise MalformedMessage("the frame ends in the header", offset)
    if frame[offset] == 0:
        return client_id, offset + 1
    _, offset = decode_at(RequestHeader, frame, 2, 0)  # tagged fields that we do not know
    return client_id, offset
