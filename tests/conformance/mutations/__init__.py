"""The catalog of mutations, by area. Each has an ID, a title, and the cases that must detect it."""

from __future__ import annotations

from ..mutating_proxy import Mutation
from . import admin, consumer_groups, fetch, groups, metadata, offsets, produce, topics, transactions, wire

MUTATIONS: list[Mutation] = [
    *wire.MUTATIONS,
    *produce.MUTATIONS,
    *fetch.MUTATIONS,
    *metadata.MUTATIONS,
    *groups.MUTATIONS,
    *offsets.MUTATIONS,
    *consumer_groups.MUTATIONS,
    *transactions.MUTATIONS,
    *topics.MUTATIONS,
    *admin.MUTATIONS,
]
