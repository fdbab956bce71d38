"""The default data directory of a server: the platform's directory for user data."""

from collections.abc import Mapping
from pathlib import Path


def default_data_directory(environment: Mapping[str, str], platform: str) -> Path:
    """``~/Library/Application Support/moldau`` on macOS, else ``moldau`` under XDG_DATA_HOME or ``~/.local/share``."""
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "moldau"
    given = environment.get("XDG_DATA_HOME", "")
    # The XDG specification: ignore a path that is not absolute.
    base = Path(given) if given.startswith("/") else Path.home() / ".local" / "share"
    return base / "moldau"
