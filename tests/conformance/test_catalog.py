"""The declarations of the cases."""

from __future__ import annotations

import pytest

from moldau.conformance import catalog
from moldau.conformance.case import Level, case
from moldau.conformance.check import Check


def test_every_case_is_explained() -> None:
    cases = catalog.all_cases().values()
    assert len(cases) > 30
    for each in cases:
        assert all(text.endswith(".") for text in (each.sends, each.expects, each.why)), each.id
        assert each.source, each.id


def test_select_finds_a_case_and_those_below_it() -> None:
    below = {each.id for each in catalog.select(ids=["produce.acks"])}
    assert {"produce.acks.none", "produce.acks.invalid.2"} < below
    assert [each.id for each in catalog.select(ids=["produce.acks.none"])] == ["produce.acks.none"]
    assert catalog.select(ids=["produce.ac"]) == []


def test_select_by_level_and_area() -> None:
    assert {each.level for each in catalog.select(level=Level.MUST)} == {Level.MUST}
    assert {each.area for each in catalog.select(areas=["produce"])} == {"produce"}


def test_versions_are_sorted_as_numbers() -> None:
    ids = [each.id for each in catalog.select(ids=["produce.exchange"])]
    assert (ids[0], ids[-1]) == ("produce.exchange.v3", "produce.exchange.v13")


def test_a_case_without_an_explanation_is_rejected() -> None:
    def body(c: Check) -> None:
        """Sends: nothing."""

    with pytest.raises(ValueError, match="Sends, Expects and Why"):
        case("area.name", "title", source="test")(body)


def test_an_id_that_is_not_dotted_is_rejected() -> None:
    def body(c: Check) -> None:
        """Sends: nothing.

        Expects: nothing.

        Why: nothing.
        """

    with pytest.raises(ValueError, match="not a case ID"):
        case("Produce", "title", source="test")(body)


def test_areas_may_be_parts_of_others() -> None:
    for area, beginning in (("acl", "security.acls.create"), ("sasl", "security.sasl.handshake")):
        assert area in catalog.areas()
        selected = catalog.select(areas=[area])
        assert any(each.id.startswith(beginning) for each in selected)
        assert {each.area for each in selected} <= {"security", "protocol"}
    assert {each.area for each in catalog.select(areas=["tls"])} == {"tls"}
