"""Applications that move from one protocol to the other, one consumer after the other (KIP-848).

`World.check` holds after every request: no partition has two readers, and the log restores the current state.
"""

from __future__ import annotations

import pytest

from .actors import ModernConsumer, World


@pytest.mark.parametrize("cooperative", [False, True])
def test_three_consumers_move_to_the_consumer_protocol_and_back(*, cooperative: bool) -> None:
    world = World()
    for number in range(3):
        world.classic(f"classic-{number}", cooperative=cooperative)
    world.settle()
    assert world.group.type == "classic"

    for number in range(3):
        world.stop(world.consumers[0])
        world.modern(f"modern-{number}")
        world.settle()
        assert world.group.type == "consumer"
        assert world.group.state_name == "Stable"
        assert world.group.classic_members == 2 - number
        assert sorted(len(consumer.owned) for consumer in world.consumers) == [2, 2, 2]

    for number in range(3):
        world.stop(world.consumers[0])
        world.classic(f"back-{number}", cooperative=cooperative)
        world.settle()
        assert sorted(len(consumer.owned) for consumer in world.consumers) == [2, 2, 2]
        # The consumer group ends with the last consumer of the consumer protocol.
        assert world.group.type == ("classic" if number == 2 else "consumer")
    assert world.group.state_name == "Stable"


@pytest.mark.parametrize("cooperative", [False, True])
def test_new_consumers_join_before_the_old_ones_leave(*, cooperative: bool) -> None:
    world = World()
    old = [world.classic(f"classic-{number}", cooperative=cooperative) for number in range(3)]
    world.settle()
    for consumer in old:
        world.modern(f"modern-{consumer.name}")
        world.settle()
        world.stop(consumer)
        world.settle()
    assert world.group.classic_members == 0
    for modern in [*world.consumers]:
        world.classic(f"back-{modern.name}", cooperative=cooperative)
        world.settle()
        world.stop(modern)
        world.settle()
    assert world.group.type == "classic"


@pytest.mark.parametrize("cooperative", [False, True])
def test_static_consumers_move_and_keep_their_partitions(*, cooperative: bool) -> None:
    world = World()
    for number in range(3):
        world.classic(f"classic-{number}", instance_id=f"i{number}", cooperative=cooperative)
    world.settle()
    had = {consumer.instance_id: consumer.owned for consumer in world.consumers}

    for _ in range(3):
        gone = world.consumers[0]
        world.stop(gone)
        world.modern(f"modern-{gone.instance_id}", instance_id=gone.instance_id)
        world.settle()
    assert {consumer.instance_id: consumer.owned for consumer in world.consumers} == had
    assert world.group.classic_members == 0

    for _ in range(3):
        gone = world.consumers[0]
        assert isinstance(gone, ModernConsumer)
        world.stop(gone)
        world.classic(f"back-{gone.instance_id}", instance_id=gone.instance_id, cooperative=cooperative)
        world.settle()
    assert {consumer.instance_id: consumer.owned for consumer in world.consumers} == had
    assert world.group.type == "classic"


def test_the_coordinator_restarts_at_every_step_of_a_move() -> None:
    world = World()
    for number in range(3):
        world.classic(f"classic-{number}")
    world.settle()
    for number in range(3):
        world.stop(world.consumers[0])
        world.coordinator.restart()
        world.modern(f"modern-{number}")
        for consumer in world.consumers:
            consumer.step()
            world.coordinator.restart()
            world.check()
        world.settle()
    assert world.group.classic_members == 0
