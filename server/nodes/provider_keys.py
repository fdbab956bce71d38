"""The keys with which an OAuth provider signs tokens: a JWKS document in a file, or at an HTTP address (KIP-768).

All methods run in threads, because they read files and wait for servers.

- A file is read again when it has changed.
- A document of a server is requested again after the refresh interval, and for a token with an unknown key id, which is
  how a provider announces a new key. Strangers can send any key id, so such requests have a minimum interval.
- While the document cannot be read, the previous keys stay valid. One thread at a time waits for the server; the others
  use the previous keys.
- Redirections are not followed: the address was chosen by the administrator, the target would not be.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...security.jwt_signatures import JwksError, ProviderKey, keys_of

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10
_MAX_BYTES: Final = 1 << 20
_MIN_INTERVAL_MS: Final = 10_000


class FileKeys:
    """The keys in a file."""

    def __init__(self, path: str) -> None:
        """Raises JwksError."""
        self._path = path
        self._lock = threading.Lock()
        self._keys: list[ProviderKey] = []
        self._version: tuple[int, int, int] | None = None
        self._problem = ""  # of the last reading
        self._read()

    def find(self, key_id: str | None) -> Sequence[ProviderKey]:
        """The keys with an id; None: all keys."""
        with self._lock:
            try:
                self._read()
                self._problem = ""
            except JwksError as error:
                if str(error) != self._problem:  # strangers decide how often the file is read
                    self._problem = str(error)
                    logger.warning(
                        "The keys of the OAuth provider cannot be read again; the previous ones stay: %s", error
                    )
            return _with_id(self._keys, key_id)

    def _read(self) -> None:
        try:
            status = os.stat(self._path)
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version == self._version:
                return
            with open(self._path, "rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise JwksError(f"{self._path}: {error.strerror or error}") from None
        self._version = version  # also of an invalid file, which is reported once
        self._keys = _parsed(data, self._path)


class RemoteKeys:
    """The keys at an address."""

    def __init__(
        self,
        url: str,
        now_ms: Callable[[], float],
        *,
        refresh_ms: int,
        backoff_ms: int,
        max_backoff_ms: int,
        context: ssl.SSLContext | None = None,
        fetch: Callable[[str, ssl.SSLContext | None], bytes] | None = None,
    ) -> None:
        """``now_ms``: a monotonic clock. ``context``: of TLS; None: the authorities of the system."""
        self._url = url
        self._now_ms = now_ms
        self._refresh_ms = refresh_ms
        self._backoff_ms = backoff_ms
        self._max_backoff_ms = max_backoff_ms
        self._context = context
        self._fetch = fetch or _fetch
        self._keys: list[ProviderKey] = []
        self._refreshing = threading.Lock()
        self._refresh_at_ms = now_ms()
        self._failures = 0
        self._unknown_at_ms: float | None = None  # the latest request because of an unknown id

    def find(self, key_id: str | None) -> Sequence[ProviderKey]:
        """The keys with an id; None: all keys."""
        if self._now_ms() >= self._refresh_at_ms:
            self.refresh()
        found = _with_id(self._keys, key_id)
        if not found and key_id is not None and self._may_look_for_new_key():
            self.refresh()
            found = _with_id(self._keys, key_id)
        return found

    def refresh(self) -> None:
        """Request the document, unless another thread does. A failure is logged, and retried after a pause."""
        if not self._refreshing.acquire(blocking=False):
            return
        try:
            self._keys = _parsed(self._fetch(self._url, self._context), self._url)
        except JwksError as error:
            logger.warning("The keys of the OAuth provider cannot be requested; retrying later: %s", error)
            pause_ms = min(self._backoff_ms * 2 ** min(self._failures, 30), self._max_backoff_ms)
            self._failures += 1
            self._refresh_at_ms = self._now_ms() + pause_ms
        else:
            self._failures = 0
            self._refresh_at_ms = self._now_ms() + self._refresh_ms
        finally:
            self._refreshing.release()

    def _may_look_for_new_key(self) -> bool:
        now_ms, previous_ms = self._now_ms(), self._unknown_at_ms
        if previous_ms is not None and now_ms - previous_ms < _MIN_INTERVAL_MS:
            return False
        self._unknown_at_ms = now_ms
        return True


def _with_id(keys: Sequence[ProviderKey], key_id: str | None) -> Sequence[ProviderKey]:
    return keys if key_id is None else [key for key in keys if key.key_id == key_id]


def _parsed(data: bytes, where: str) -> list[ProviderKey]:
    if len(data) > _MAX_BYTES:
        raise JwksError(f"{where}: the document is larger than {_MAX_BYTES} bytes")
    try:
        keys = keys_of(data)
    except JwksError as error:
        raise JwksError(f"{where}: {error}") from None
    if not keys:
        raise JwksError(f"{where}: the document has no public key for signatures")
    return keys


def _fetch(url: str, context: ssl.SSLContext | None) -> bytes:
    import http.client
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    class NoRedirections(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    opener = build_opener(NoRedirections, HTTPSHandler(context=context))
    request = Request(url, headers={"Accept": "application/json"})
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            data: bytes = response.read(_MAX_BYTES + 1)
            return data
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        raise JwksError(f"{url}: {error}") from None
