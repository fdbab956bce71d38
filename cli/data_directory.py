"""Where a server that is not told otherwise keeps its data: among the user's data, as the platform has it."""

from collections.abc import Mapping
from pathlib import Path


def default_data_directory(environment: Mapping[str, str], platform: str) -> Path:
    """``~/Library/Application Support/moldau`` on macOS, else ``moldau`` under XDG_DATA_HOME or ``~/.local/share``."""
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "moldau"
    given = environment.get("XDG_DATA_HOME", "")
    # The XDG specification: a path that is not absolute does not count.
    base = Path(given) if given.startswith("/") else Path.home() / ".local" / "share"
    return base / "moldau"
