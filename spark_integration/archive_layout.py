"""The files of an archive, and the atomic operations that add to it.

    DIR/manifest.json                                   lists what belongs to the archive; only this does
    DIR/data/batch=12/date=2026-11-20/partition=3/*.parquet   a piece: the records of one batch
    DIR/data/batch=0-11/...                             a piece that replaced several others (compaction)
    DIR/data/.writing-12-3f9a1c/                        a piece that is not complete yet, or never will be
    DIR/checkpoint/                                     Spark's checkpoint, unless another folder was named
    DIR/.lock                                           locked while a program writes to the archive

A piece is written under a temporary name, synced to disk and renamed. Then the manifest is replaced, by the same three
steps, with one that names the piece. So a program that dies leaves either a temporary folder or a piece that the
manifest does not name. The next program removes both, and neither is ever read. A temporary name is never used twice,
because a JVM that survives its program may still be writing for a moment.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class ArchiveError(Exception):
    """The archive or replay cannot start or continue; the text states the reason and what to do."""


_PIECE_NAME = re.compile(r"batch=\d+(-\d+)?")
_TEMPORARY_PREFIX = ".writing-"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of the archive in ``root``, which is a local or mounted folder."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    def piece(self, first_batch: int, last_batch: int) -> Path:
        return self.data / (
            f"batch={first_batch}" if first_batch == last_batch else f"batch={first_batch}-{last_batch}"
        )

    def temporary(self, batch: int) -> Path:
        return self.data / f"{_TEMPORARY_PREFIX}{batch}-{secrets.token_hex(6)}"


def local_folder(text: str) -> Path:
    """The folder named by ``text``. ArchiveError for an address (``s3a://...``), where a rename is not atomic."""
    if text.startswith("file:"):
        text = text.removeprefix("file://").removeprefix("file:")
    if "://" in text:
        raise ArchiveError(
            f"{text} is not a folder of this machine: an archive relies on atomic renames and locks of a file system. "
            "Mount it, or archive into a local folder and copy that folder"
        )
    return Path(text).absolute()


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Lock the archive for its only writer, inside a ``with`` block. The lock also ends with the process."""
    try:
        layout.data.mkdir(parents=True, exist_ok=True)
        lock = os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ArchiveError(f"cannot write to {layout.root}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(f"another program is writing to {layout.root}: stop it, or wait until it ends") from None
        yield
    finally:
        os.close(lock)


def publish(temporary: Path, final: Path) -> None:
    """Rename a complete folder to its final name, after all of its files were synced to disk."""
    for folder, _, names in os.walk(temporary):
        for name in names:
            _force(Path(folder, name))
        _force(Path(folder))
    _replace(temporary, final)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file. Readers, and a machine that restarts at any moment, see either the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _replace(temporary, path)


def remove_leftovers(layout: Layout, pieces: Collection[str]) -> list[str]:
    """Remove what a crashed program has left: every entry with a name of ours that is not one of ``pieces``."""
    removed = []
    for path in sorted(layout.data.iterdir()):
        is_ours = path.name.startswith(_TEMPORARY_PREFIX) or _PIECE_NAME.fullmatch(path.name) is not None
        if is_ours and path.name not in pieces:
            shutil.rmtree(path)
            removed.append(path.name)
    for path in layout.root.glob(f".{layout.manifest.name}.*"):
        path.unlink()
        removed.append(path.name)
    return removed


def remove_piece(layout: Layout, name: str) -> None:
    """Remove a piece that the manifest no longer names."""
    shutil.rmtree(layout.data / name)


def _replace(temporary: Path, final: Path) -> None:
    temporary.rename(final)
    _force(final.parent)


def _force(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
