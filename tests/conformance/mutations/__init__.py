"""The catalog of mutations, by area. Each has an ID, a title, and the cases that must detect it."""

from __future__ import annotations

from ..mutating_proxy import Mutation
from . import produce, wire

MUTATIONS: list[Mutation] = [
    *wire.MUTATIONS,
    *produce.MUTATIONS,
]
