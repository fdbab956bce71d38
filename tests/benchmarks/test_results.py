"""The file of results: it is read unchanged, its format is fixed, and any other file is rejected."""

import json
from pathlib import Path

import pytest

from moldau.benchmarks.results import Outcome, Results, ResultsError, load, save
from moldau.benchmarks.row import Subject

from .conftest import measured


def some_results() -> Results:
    results = measured(requests_per_s={Subject.CEILING: [3.0], Subject.MOLDAU: [1.0, 2.0]})
    results.skipped["other"] = "needs a C compiler"
    results.add("row", "some work", "Group", Subject.MOLDAU, Outcome(3, 2.0, error="it broke\nbadly"))
    return results


def test_written_results_are_read_unchanged(tmp_path: Path) -> None:
    save(some_results(), tmp_path / "folder" / "results.json")

    assert load(tmp_path / "folder" / "results.json") == some_results()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["results.json"]


def test_a_measurement_is_a_line(tmp_path: Path) -> None:
    save(some_results(), tmp_path / "results.json")
    before = (tmp_path / "results.json").read_text().splitlines()
    more = some_results()
    more.add("row", "some work", "Group", Subject.MOLDAU, Outcome(3, 2.0, {"requests_per_s": 1234567.89}))
    save(more, tmp_path / "results.json")
    after = (tmp_path / "results.json").read_text().splitlines()

    assert [line for line in after if line not in before] == [
        '     {"round": 3, "seconds": 2.0, "numbers": {"requests_per_s": 1234570.0}}'
    ]
    assert len(before) == len(after)


def test_the_order_is_that_of_the_rows_and_not_of_the_measurements() -> None:
    results = some_results()
    results.add("first", "", "Group", Subject.MOLDAU, Outcome(1, 1.0))
    results.add("unknown", "", "Group", Subject.MOLDAU, Outcome(1, 1.0))

    results.in_order(["first", "nobody", "row"])

    assert list(results.rows) == ["first", "row", "unknown"]


def test_a_measurement_replaces_one_of_the_same_round() -> None:
    results = some_results()
    assert not results.has("row", Subject.MOLDAU, 3)
    results.add("row", "some work", "Group", Subject.MOLDAU, Outcome(3, 2.0, {"requests_per_s": 3.0}))

    assert results.has("row", Subject.MOLDAU, 3)
    assert results.rows["row"].values(Subject.MOLDAU, "requests_per_s") == [1.0, 2.0, 3.0]
    assert results.rows["row"].median(Subject.MOLDAU, "requests_per_s") == 2.0


@pytest.mark.parametrize(
    ("where", "value", "complaint"),
    [
        (["format"], 2, "format 2"),
        (["commits"], "abc", "commits is not a list"),
        (["machine", "cpu"], 3, "machine: cpu: 3 is not a string"),
        (["rows", "row", "title"], None, "row: None is not a string"),
        (["rows", "row", "subjects", "nobody"], [], "unknown subject"),
        (["rows", "row", "subjects", "moldau", 0, "round"], "1", "invalid number of a round"),
        (["rows", "row", "subjects", "moldau", 0, "numbers", "requests_per_s"], "1", "'1' is not a number"),
        (["rows", "row", "subjects", "moldau", 0, "numbers", "requests_per_s"], True, "True is not a number"),
    ],
)
def test_invalid_content_is_rejected_with_its_position(
    tmp_path: Path, where: list[str | int], value: object, complaint: str
) -> None:
    path = tmp_path / "results.json"
    save(some_results(), path)
    document = json.loads(path.read_text())
    place = document
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    path.write_text(json.dumps(document))

    with pytest.raises(ResultsError, match=complaint) as refused:
        load(path)
    assert str(path) in str(refused.value)


def test_invalid_json_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{")

    with pytest.raises(ResultsError):
        load(tmp_path / "results.json")
