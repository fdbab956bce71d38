"""Pages of a long list, selected by ``page=N`` in the address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from starlette.requests import Request

from .messages import natural

T = TypeVar("T")


class Page(NamedTuple, Generic[T]):
    """A part of a list."""

    shown: Sequence[T]
    number: int
    """From 0 on."""
    pages: int


def page_of(request: Request, items: Sequence[T], per_page: int) -> Page[T]:
    """The part that the address selects; the last one if the list has become shorter. Raises BadRequest."""
    pages = (len(items) + per_page - 1) // per_page
    number = min(natural(request.query_params.get("page") or "0", "page"), max(0, pages - 1))
    return Page(items[number * per_page : (number + 1) * per_page], number, pages)
