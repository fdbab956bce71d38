"""All kinds of groups that this coordinator serves."""

from __future__ import annotations

from typing import Final

from .classic.kind import CLASSIC
from .consumer.kind import CONSUMER
from .kind import GroupKinds

KINDS: Final = GroupKinds(CLASSIC, CONSUMER)
