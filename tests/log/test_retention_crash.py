"""Crashes while old segments are being deleted, from a seed: the log continues at its end offset, even if empty."""

from __future__ import annotations

import random

import pytest

from moldau.log.memory_files import SimulatedCrash

from .test_crash import NOW, History, check_agreement


class RetainedHistory(History):
    """Deletes segments as the server does: rolls if all are old, flushes, renames."""

    STEPS = (*History.STEPS, "retain")
    WEIGHTS = (*History.WEIGHTS, 6)

    def retain(self) -> None:
        log = self.log
        count = self.dice.randint(1, len(log.segments))
        if count == len(log.segments):
            log.roll(NOW)
        if count < len(log.segments):
            self.flush()
            log.delete_first_segments(count)
            if self.dice.random() < 0.5:
                self.log_start_offset = log.log_start_offset  # the checkpoint has been written


@pytest.mark.parametrize("power_lost", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("seed", range(150))
def test_a_crash_while_segments_are_deleted_loses_no_later_records(seed: int, power_lost: bool) -> None:
    history = RetainedHistory(seed)
    dice = random.Random(f"{seed} {power_lost}")
    for _ in range(4):
        history.file_system.operations_left = dice.randint(0, 60)
        history.run(50)
        history.crash(dice if power_lost else None)
    history.run(10)
    check_agreement(history.log)


@pytest.mark.parametrize("power_lost", [False, True], ids=["killed", "power lost"])
def test_a_crash_at_each_change_of_a_deletion_in_turn(power_lost: bool) -> None:
    changes = 0
    while True:
        history = RetainedHistory(5)
        for _ in range(6):
            history.append()
            history.write_in_transaction()
        history.flush()
        history.file_system.operations_left = changes
        try:
            history.log.roll(NOW)
            history.flush()
            history.log.delete_first_segments(len(history.log.segments) - 1)
        except SimulatedCrash:
            history.crash(random.Random(changes) if power_lost else None)
            changes += 1
        else:
            history.crash(random.Random(changes) if power_lost else None)
            # A rename that is not on the device may be undone by a loss of power; it is done again then.
            assert power_lost or history.log.log_start_offset == history.log.log_end_offset
            break
    assert changes > 5
