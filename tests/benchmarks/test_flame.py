"""A flame graph contains no data about the machine on which it was created."""

from pathlib import Path

import pytest

from moldau.benchmarks import machine
from moldau.benchmarks.flame import anonymized


def test_the_graph_contains_no_path_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path("/somewhere/a-checkout")
    monkeypatch.setattr(machine, "checkout", lambda: root)
    svg = (
        f'<svg><text id="title" x="1">{root}/bin/py-spy record --output {root}/a.svg</text>'
        f"<title>run ({root.name}/server/main.py:1)</title></svg>"
    )
    assert anonymized(svg, "a & b") == (
        '<svg><text id="title" x="1">a &amp; b</text><title>run (moldau/server/main.py:1)</title></svg>'
    )
