"""Regular expressions of users: those of RE2, which take linear time."""

from __future__ import annotations

from typing import Any


def compiled(text: str, *, captures: bool = True, max_bytes: int | None = None) -> Any:
    """The pattern. ``captures``: whether it has groups. ``max_bytes``: of the compiled pattern; None: RE2's default.

    Raises ValueError with RE2's reason.
    """
    import re2  # importing it takes milliseconds, and few servers have such expressions

    options = re2.Options()
    options.log_errors = False  # it would write to the standard error
    options.never_capture = not captures
    if max_bytes is not None:
        options.max_mem = max_bytes
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else reason) from None
