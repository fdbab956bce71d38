"""The setting `max.connections.per.ip.overrides`: ``address:limit``, separated by commas."""

from .definition import ConfigError

SETTING = "max.connections.per.ip.overrides"


def parse_overrides(text: str) -> dict[str, int]:
    """The limits by address. Raises ConfigError."""
    if not text.strip():
        return {}
    from ipaddress import ip_address  # few servers need it

    found = {}
    for entry in text.split(","):
        address, _, limit = entry.strip().rpartition(":")
        if not (limit.isascii() and limit.isdecimal()):
            raise ConfigError(f"Invalid value for configuration {SETTING}: {entry.strip()!r} is not ADDRESS:LIMIT")
        try:
            found[str(ip_address(address.removeprefix("[").removesuffix("]")))] = int(limit)
        except ValueError:
            problem = f"{address!r} is not an IP address; names are not resolved"
            raise ConfigError(f"Invalid value for configuration {SETTING}: {problem}") from None
    return found
