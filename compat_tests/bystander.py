"""A member of an idle group, which measures whether load on other groups disturbs it.

It sends heartbeats and commits all the time, in a dedicated thread, and measures each round. The speed
of the machine is unknown, so rounds on a busy server are compared with earlier rounds on the same server, when it was
idle. One bound does not depend on that: each heartbeat gets its response before the next one is due.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from types import TracebackType
from typing import Final, Self

from moldau.testing.group_requests import ClassicMember, commit, commit_request, describe_group, rebalance
from moldau.testing.topic_requests import Topic
from moldau.testing.wire import WireClient

# The shortest session that brokers allow by default. Clients send heartbeats three times in a session.
SESSION_MS: Final = 6_000
INTERVAL_S: Final = SESSION_MS / 3 / 1000

QUIET_ROUNDS: Final = 100

_PAUSE_S: Final = 0.005
_DEADLINE_S: Final = 180


class Bystander:
    """The only member of its group."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: Topic) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._member = ClassicMember(bootstrap_servers, group_id, session_timeout_ms=SESSION_MS)
        self._topic = topic
        self._rounds: list[float] = []
        self._answers: set[str] = set()
        self._failure: Exception | None = None
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        rebalance(self._member)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        self._member.close()

    @contextmanager
    def undisturbed(self, slower_at_most: int) -> Iterator[None]:
        """Check that nothing in this block ends its session or its generation, or delays it for long.

        A round takes at most ``slower_at_most`` times as long as on an idle server: the medians are compared.
        """
        quiet = self._rounds_from(self._count(), QUIET_ROUNDS)
        first = self._count()
        yield
        # The current round has begun within the block.
        busy = self._rounds_from(first, self._count() - first + 1)
        # An expired member, or an old generation, would get an error code.
        assert self._answers == {"NONE"}
        with WireClient(self._bootstrap_servers) as wire:
            group = describe_group(wire, self._member.group_id)
        assert (group.group_state, [each.member_id for each in group.members]) == ("Stable", [self._member.member_id])
        assert max(busy) < INTERVAL_S
        assert median(busy) < slower_at_most * median(quiet)

    def _count(self) -> int:
        with self._changed:
            return len(self._rounds)

    def _rounds_from(self, first: int, count: int) -> list[float]:
        """The durations, in seconds, of the rounds from ``first`` on, at least ``count``. Waits for them."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._failure or len(self._rounds) >= first + count, _DEADLINE_S)
            if self._failure is not None:
                raise self._failure
            assert done, f"{len(self._rounds) - first} rounds in {_DEADLINE_S} s, not {count}"
            return self._rounds[first:]

    def _run(self) -> None:
        member = self._member
        own = commit_request(
            member.group_id, self._topic, {0: 1}, member_id=member.member_id, generation=member.generation
        )
        stopping = False
        while not stopping:
            before = time.monotonic()
            try:
                answers = {member.heartbeat(), *commit(member.wire, own).values()}
            except Exception as failure:  # noqa: BLE001 - raised again by the thread that waits for rounds
                with self._changed:
                    self._failure = failure
                    self._changed.notify_all()
                return
            with self._changed:
                self._rounds.append(time.monotonic() - before)
                self._answers |= answers
                self._changed.notify_all()
                stopping = self._changed.wait_for(lambda: self._stopping, _PAUSE_S)
