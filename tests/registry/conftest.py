"""Tests of the registry need its packages."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _packages() -> None:
    for package in ("fastavro", "grpc_tools", "jsonschema", "starlette", "uvicorn"):
        pytest.importorskip(package, reason="needs pip install 'moldau[registry]'")
