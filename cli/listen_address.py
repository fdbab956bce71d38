"""The address of an option such as ``--listen``."""

from __future__ import annotations

import click


def parse_address(text: str, option: str) -> tuple[str, int]:
    """The host and the port of HOST:PORT. Raises BadParameter that names the option."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
