"""The sessions of members of groups that were loaded: a whole one from then on, and a little more for some.

After loading they would all end in the same millisecond, those of members who went away meanwhile. So they are spread
over a tenth of the session, by the order in which the members are loaded: the same log gives the same deadlines.
"""

from __future__ import annotations

_STEPS = 100


def first_session_ms(session_timeout_ms: int, index: int) -> int:
    """How long the first session of the member with this number is."""
    return session_timeout_ms + session_timeout_ms * (index % _STEPS) // (10 * _STEPS)
