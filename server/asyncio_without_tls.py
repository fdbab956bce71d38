"""asyncio without OpenSSL, for a server that does not use TLS.

asyncio imports `ssl` for transports that Moldau does not use. If the import fails, asyncio works without it, as on a
Python that was built without OpenSSL. This saves 4 MB of memory: an idle server uses 27.6 MB instead of 31.7 MB.
"""

from __future__ import annotations

import sys


def import_asyncio() -> None:
    """Import asyncio, if it is not imported yet, without `ssl`. Later imports of `ssl` succeed."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]
