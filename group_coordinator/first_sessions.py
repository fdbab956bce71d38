"""The first sessions of members of loaded groups: a full session timeout, and up to a tenth more.

Otherwise the sessions of all members that left during the restart would expire in the same millisecond. The deadlines
are spread by the order in which the members are loaded: the same log gives the same deadlines.
"""

from __future__ import annotations

_STEPS = 100


def first_session_ms(session_timeout_ms: int, index: int) -> int:
    """The length of the first session of the member with this number, in milliseconds."""
    return session_timeout_ms + session_timeout_ms * (index % _STEPS) // (10 * _STEPS)
