"""Assignors of the coordinator: pure functions from subscriptions to assignments.

`ASSIGNORS` contains them by the names that members and `group.consumer.assignors` use.
"""

from typing import Final

from .range import assign_range
from .spec import Assignor
from .uniform import assign_uniformly

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_range}
