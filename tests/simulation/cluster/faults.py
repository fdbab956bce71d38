"""What happens to the nodes and the links of a simulated cluster, at random moments.

Each fault ends after a random time, on which others can begin: a node is started again, a link is healed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from .clients import ADDRESS
from .nodes import CONTROLLER, Node

if TYPE_CHECKING:
    from .network import SimulatedNetwork
    from .world import World


class Faults:
    """See the module docstring."""

    KINDS: dict[str, int] = {  # noqa: RUF012
        "kill": 4,
        "stop": 2,
        "pause": 3,
        "cut": 4,
        "cut_one_way": 4,
        "delay": 3,
        "slow": 2,
        "lose_answer": 12,
        "reset": 4,
    }

    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        nodes: Iterable[Node],
        dice: Random,
        log: Callable[[str], None],
        *,
        power_may_fail: bool,
    ) -> None:
        self._world = world
        self._network = network
        self._nodes = list(nodes)
        self._dice = dice
        self._log = log
        self._power_may_fail = power_may_fail
        self._is_over = False
        self.counts: Counter[str] = Counter()

    def begin(self) -> None:
        """Let faults happen until `end`."""
        self._world.after(self._dice.random() * 2, self._next)

    def end(self) -> None:
        """Repair everything: all nodes run, all links work."""
        self._is_over = True
        self._log("all faults end")
        self._network.heal()
        for node in self._nodes:
            self._resume(node)
            if not node.is_running:
                node.start()

    def restart_ended(self) -> None:
        """Start the nodes again whose process has ended by itself, as a supervisor does."""
        for node in self._nodes:
            if node.is_running and not node.is_paused:
                reason = node.ended()
                if reason is not None:
                    self._log(f"node {node.node_id} has ended: {reason}")
                    self._start_later(node, 3)

    def _next(self) -> None:
        if self._is_over:
            return
        kinds, weights = list(self.KINDS), list(self.KINDS.values())
        kind = self._dice.choices(kinds, weights)[0]
        getattr(self, f"_{kind}")()
        self._world.after(self._dice.choice((0.05, 0.5, 3)) * self._dice.random(), self._next)

    def _happens(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        self._log(text)

    def _pick(self) -> Node | None:
        """A running node; the controller less often."""
        running = [node for node in self._nodes if node.is_running and not node.is_paused and node.stopping is None]
        if not running:
            return None
        node = self._dice.choice(running)
        return self._dice.choice(running) if node.node_id == CONTROLLER else node

    def _later(self, most_seconds: float, callback: Callable[[], None]) -> None:
        def run() -> None:
            if not self._is_over:
                callback()

        self._world.after(most_seconds * self._dice.choice((0.01, 0.1, 1)) * self._dice.random(), run)

    def _start_later(self, node: Node, most_seconds: float) -> None:
        if self._is_over:
            node.start()
            return

        def start() -> None:
            if not node.is_running:
                self._log(f"node {node.node_id} is started")
                node.start()

        self._later(most_seconds, start)

    # Nodes

    def _kill(self) -> None:
        node = self._pick()
        if node is not None:
            power_lost = self._power_may_fail and self._dice.random() < 0.5
            kind = "power lost" if power_lost else "killed"
            self._happens(kind, f"node {node.node_id}: {kind}")
            node.kill(power_lost=power_lost)
            self._start_later(node, 25)

    def _stop(self) -> None:
        node = self._pick()
        if node is not None and node.serves:
            self._happens("stopped", f"node {node.node_id} is stopped")
            node.stop()

    def _pause(self) -> None:
        node = self._pick()
        if node is not None:
            assert node.loop is not None
            self._happens("paused", f"node {node.node_id} is paused")
            node.loop.is_paused = True
            self._later(25, lambda: self._resume(node))

    def _resume(self, node: Node) -> None:
        if node.loop is not None and node.loop.is_paused:
            self._log(f"node {node.node_id} continues")
            node.loop.is_paused = False
        if node.loop is not None:
            node.loop.slowness = 1.0

    def _slow(self) -> None:
        node = self._pick()
        if node is not None:
            assert node.loop is not None
            self._happens("slow", f"node {node.node_id} is slow")
            node.loop.slowness = 50.0
            self._later(10, lambda: self._resume(node))

    # Links

    def _two_nodes(self) -> tuple[str, str]:
        first, second = self._dice.sample(self._nodes, 2)
        return first.address, second.address

    def _cut(self) -> None:
        first, second = self._two_nodes()
        self._happens("cut", f"{first} and {second} are cut off from each other")
        self._network.cut(first, second)
        self._network.cut(second, first)
        self._later(25, lambda: self._heal(first, second))

    def _heal(self, first: str, second: str) -> None:
        self._log(f"the links between {first} and {second} are healed")
        self._network.heal_link(first, second)
        self._network.heal_link(second, first)

    def _cut_one_way(self) -> None:
        sender, receiver = self._two_nodes()
        self._happens("cut one way", f"nothing arrives from {sender} at {receiver}")
        self._network.cut(sender, receiver)
        self._later(25, lambda: self._heal(sender, receiver))

    def _delay(self) -> None:
        sender, receiver = self._two_nodes()
        if self._dice.random() < 0.3:
            sender = ADDRESS
        self._happens("delayed", f"data from {sender} to {receiver} is delayed")
        self._network.delays[sender, receiver] = self._dice.choice((0.05, 0.5, 2.0))
        self._later(15, lambda: self._network.end_delay(sender, receiver))

    def _lose_answer(self) -> None:
        """A request is served, and its connection is lost before the response arrives."""
        sockets = self._network.accepted_sockets()
        if sockets:
            sock = self._dice.choice(sockets)
            sock.loses_answer = True
            self._happens("lost answer", f"{sock.local[0]} will lose a response to {sock.remote[0]}")

    def _reset(self) -> None:
        sockets = self._network.accepted_sockets()
        if sockets:
            sock = self._dice.choice(sockets)
            self._happens("reset", f"a connection of {sock.remote[0]} to {sock.local[0]} is reset")
            self._network.reset(sock)
