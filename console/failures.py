"""Failures that are the mistake of a request, so that a program does not repeat it: each has its HTTP status.

Other failures are those of the cluster, and become the status 502.
"""

from __future__ import annotations

from ..cli.failure import Failure


class BadRequest(Failure):
    """A parameter or a body that has no meaning."""

    status = 400


class NotAllowed(BadRequest):
    """The cluster does not permit it to the console's user, or the console was started with ``--read-only``."""

    status = 403


class NotFound(BadRequest):
    """A topic or a partition that does not exist."""

    status = 404
