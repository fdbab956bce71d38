"""The generated part of docs/performance.md, and its pictures."""

from pathlib import Path

import pytest

from moldau.benchmarks import registry, report
from moldau.benchmarks.results import Outcome, Results
from moldau.benchmarks.row import Bench, Numbers, Row, Subject, Target

from .conftest import measured, targeted

MOLDAU, APACHE, CEILING = Subject.MOLDAU, Subject.APACHE, Subject.CEILING


def compared() -> Results:
    return measured(
        requests_per_s={MOLDAU: [40_000.0, 40_261.0, 41_000.0], APACHE: [20_000.0], CEILING: [80_522.0]},
        p50_us={MOLDAU: [20.0], APACHE: [30.0]},
        p99_us={MOLDAU: [25.0], APACHE: [100.0]},
        p999_us={MOLDAU: [30.0], APACHE: [900.0]},
        cpu_s_per_gb={MOLDAU: [1.0], APACHE: [4.0]},
        rss_mb={MOLDAU: [25.0], APACHE: [400.0]},
    )


def test_a_table_for_each_group_and_one_of_the_targets() -> None:
    row = targeted(Target("requests_per_s", at_least=1.0), Target("p99_us", at_most=0.2))

    text = report.markdown([(compared(), "results")], [row])

    assert "| `row` | some work | requests/s | ≥ Apache Kafka | 2.01 | reached |" in text
    assert "|  |  | p99, µs | ≤ 0.2 × Apache Kafka | 0.25 | **not reached** |" in text
    assert "#### Group\n\n| work | number | Moldau | Apache Kafka | ratio | ceiling | of the ceiling |\n" in text
    assert "| some work | requests/s | 40,300 (40,000 to 41,000) | 20,000 | 2.01 | 80,500 | 0.50 |\n" in text
    assert "|  | p99, µs | 25 | 100 | 0.25 |  |  |\n" in text
    assert "Commit abc" in text
    assert "abacus" in text
    assert "Not measured" not in text
    assert "mean nothing" not in text


def test_a_reduced_amount_of_work_is_reported() -> None:
    results = compared()
    results.settings["work"] = "0.02"

    assert "Only 0.02 of each row's work" in report.markdown([(results, "results")], [targeted()])


def test_failures_and_skipped_rows_are_reported() -> None:
    results = compared()
    results.skipped["lonely"] = "needs a friend"
    results.add("row", "some work", "Group", APACHE, Outcome(2, 1.0, error="TimeoutError: too slow\nand more"))

    text = report.markdown([(results, "results")], [targeted()])

    assert "- lonely: needs a friend\n- row, Apache Kafka, round 2: TimeoutError: too slow ... and more\n" in text


def test_each_run_has_a_separate_section_the_newest_last() -> None:
    def never(_bench: Bench) -> Numbers:
        raise AssertionError("nothing is measured here")

    target = Target("requests_per_s", at_least=1.0)
    rows = [
        targeted(target),
        Row("other", "other work", "Group", never, targets=(target,)),
        Row("third", "work that was not measured", "Group", never, targets=(target,)),
    ]
    main = compared()
    main.add("fourth", "work of a row that is no more", "Group", MOLDAU, Outcome(1, 1.0, {"requests_per_s": 4.0}))
    later = Results(date="2026-11-22", commits=["def"], machine={"cpu": "slide rule"})
    for subject, value in ((MOLDAU, 30.0), (APACHE, 10.0)):
        later.add("other", "other work", "Group", subject, Outcome(1, 1.0, {"requests_per_s": value}))

    text = report.markdown([(later, "the later file"), (main, "the main file")], rows, ["![a picture](it.svg)"])

    first, second = text[text.index("### Measured on 2026-11-21") :].split("### Measured on 2026-11-22")
    assert "cpu abacus" in first
    assert "the main file" in first
    assert "| `row` | some work | requests/s | ≥ Apache Kafka | 2.01 | reached |" in first
    assert "| `third` | work that was not measured | requests/s | ≥ Apache Kafka | not measured |  |" in first
    assert "![a picture](it.svg)" in first
    assert "other work" not in first
    assert "cpu slide rule" in second
    assert "the later file" in second
    assert "| `other` | other work | requests/s | ≥ Apache Kafka | 3.00 | reached |" in second
    assert "| other work | requests/s | 30 | 10 | 3.00 |  |  |" in second
    assert not [each for each in ("some work", "was not measured", "picture") if each in second]
    assert report.fullest([later, main]) is main


def test_only_the_text_between_the_markers_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    page.write_text(f"Before.\n\n{report.BEGIN}\nyesterday\n{report.END}\n\nAfter.\n")
    source = tmp_path / "benchmarks" / "results" / "today.json"

    plots = [(tmp_path / "docs" / "performance" / "memory.svg", "Memory")]
    report.write(page, [(compared(), source)], [targeted()], plots=plots)
    once = page.read_text()
    report.write(page, [(compared(), source)], [targeted()], plots=plots)

    assert page.read_text() == once
    assert once.startswith(f"Before.\n\n{report.BEGIN}\n")
    assert once.endswith(f"\n{report.END}\n\nAfter.\n")
    assert "yesterday" not in once
    assert "[today.json](../benchmarks/results/today.json)" in once
    assert "![Memory](performance/memory.svg)" in once


@pytest.mark.parametrize("page", ["nothing", report.BEGIN, f"{report.END} {report.BEGIN}"])
def test_a_page_without_markers_is_not_changed(page: str) -> None:
    with pytest.raises(report.MarkersError):
        report.replaced(page, "text")


def test_the_page_has_its_markers() -> None:
    page = Path(__file__).parents[2] / "docs" / "performance.md"

    assert "generated" in report.replaced(page.read_text(), "generated")


def test_the_terminal_has_the_rows_names() -> None:
    first, second, *_rest = report.terminal_table(compared(), [targeted()])

    assert first == ("row", "requests/s", "40,300 (40,000 to 41,000)", "20,000", "2.01", "80,500", "0.50")
    assert second[:3] == ("", "p50, µs", "20")


def test_every_target_refers_to_a_measured_subject() -> None:
    for row in registry.all_rows():
        for target in row.targets:
            assert target.at_least is not None or target.at_most is not None, row.name
            assert target.against is None or target.against in row.subjects, row.name


def test_plots_are_reproducible_and_only_exist_for_measured_numbers(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'moldau[bench]'")
    from moldau.benchmarks import plots

    first = plots.draw(compared(), [targeted()], tmp_path / "first")
    second = plots.draw(compared(), [targeted()], tmp_path / "second")

    assert [path.name for path, _title in first] == ["throughput.svg", "latency.svg", "cpu.svg", "memory.svg"]
    for (one, _title), (other, _) in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert b"some work" in one.read_bytes()
    assert b"40,300 requests/s" in first[0][0].read_bytes()

    memory_alone = plots.draw(measured(rss_mb={MOLDAU: [25.0]}), [targeted()], tmp_path / "first")
    assert [path for path, _title in memory_alone] == list((tmp_path / "first").iterdir())
    assert [title for _path, title in memory_alone] == ["Resident memory"]
