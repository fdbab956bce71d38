"""The compaction worker process exits with its server and logs nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys

from moldau.log.compaction.job import CompactionJob, SegmentFiles
from moldau.server.concurrency.worker_pipe import LENGTH_BYTES


def test_a_worker_logs_nothing_if_its_server_was_killed_before_the_response() -> None:
    job = CompactionJob(
        directory="/nowhere",
        topic="t",
        partition=0,
        segments=(SegmentFiles(0, 100, 10, 0),),
        later_segments=(),
        first_dirty_offset=0,
        now_ms=0,
        delete_retention_ms=0,
        segment_bytes=1000,
        segment_index_bytes=1000,
        index_interval_bytes=100,
        dedupe_buffer_bytes=1000,
        io_bytes_per_second=0,
        last_batches={},
    )
    data = pickle.dumps((job, False))
    worker = subprocess.Popen(
        [sys.executable, "-m", "moldau.server.upkeep.compaction_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.close()
        worker.stdin.write(len(data).to_bytes(LENGTH_BYTES, "big") + bytes(LENGTH_BYTES) + data)
        worker.stdin.flush()
        assert worker.wait(60) == 0
        assert worker.stderr.read() == b""
