"""The clocks of the thread that serves metrics, and its pauses.

The interpreter lock lets one thread compute at a time. A thread that computes for long delays the event loop by five
milliseconds at each system call of the loop. So the thread that builds metrics pauses after each `WORK_S`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

WORK_S: Final = 0.0003
PAUSE_S: Final = 0.0009

monotonic: Final = time.perf_counter
"""Seconds since an unspecified moment."""
pause: Final = time.sleep
"""Pauses the calling thread."""
thread_cpu: Final = time.thread_time
"""The CPU time of the calling thread, in seconds."""


def cpu_clock_of_this_thread() -> Callable[[], float]:
    """A function that returns the CPU time of the calling thread in seconds; any thread may call it."""
    import threading

    if not hasattr(time, "pthread_getcpuclockid"):  # macOS
        return time.process_time
    clock_id = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock_id)


def process_cpu() -> float:
    """The CPU time of the process, in seconds."""
    times = os.times()
    return times.user + times.system
