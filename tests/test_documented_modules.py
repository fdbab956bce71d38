"""The tables of packages and modules in docs/ match the repository, and lines of the documentation are short."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(not (ROOT / "protocol").is_dir(), reason="looks at the folders of a checkout")
_CELL = re.compile(r"^\| (.*?) \|", re.MULTILINE)
_QUOTED = re.compile(r"`([a-z_/]+)`")


def first_cells(page: str) -> set[str]:
    """What is in backticks in the first column of the page's tables."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return {name for cell in _CELL.findall(text) for name in _QUOTED.findall(cell)}


def test_every_module_of_the_server_is_in_its_table_and_no_other() -> None:
    server = ROOT / "server"
    modules = {
        str(path.relative_to(server).with_suffix(""))
        for path in server.rglob("*.py")
        if path.stem != "__init__" and path.parent.name != "handlers"
    }
    documented = {name for name in first_cells("server.md") if not name.endswith("/")}
    assert modules == {name for name in documented if not name.startswith("handlers/")}


def test_the_folder_of_the_server_has_a_dozen_modules_and_otherwise_subpackages() -> None:
    assert len(list((ROOT / "server").glob("[a-z]*.py"))) <= 12


def test_every_package_is_in_the_table_of_layers_and_no_other() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    documented = {name.rstrip("/") for name in first_cells("architecture.md") if name.endswith("/")}
    assert packages == documented


def test_every_subpackage_of_the_server_is_a_layer() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = re.findall(r"[a-z_]+", contracts["importlinter:contract:server"]["layers"])
    subpackages = {path.parent.name for path in (ROOT / "server").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "server").glob("*.py")} - {"__init__"}
    assert set(layers) == subpackages | modules


@pytest.mark.parametrize("page", ["groups.md", "transactions.md"])
def test_every_module_in_the_tables_of_a_page_exists(page: str) -> None:
    paths = [name for name in first_cells(page) if "/" in name]
    assert paths
    assert [name for name in paths if not (ROOT / name).is_dir() and not (ROOT / f"{name}.py").is_file()] == []


def test_lines_of_the_documentation_have_at_most_120_characters() -> None:
    """Except tables, code, and the page that `moldau bench` writes."""
    pages = {ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")}
    long = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in sorted(pages - {ROOT / "docs" / "performance.md"})
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not line.startswith(("|", "    "))
    ]
    assert long == []
