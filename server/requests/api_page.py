"""Generates docs/apis.md from the table `server.apis`: ``python -m moldau.server.requests.api_page > docs/apis.md``."""

from __future__ import annotations

import ast
from pathlib import Path

from ..apis import APIS, Api, Listeners


def page() -> str:
    """The page in Markdown: every API with its versions, and the docstring of its handler's module."""
    lines = [
        "# APIs",
        "",
        "The APIs of this server, as ApiVersions reports them. The versions are those of Apache Kafka 4.3.",
        "This page is generated from the table in `server/apis.py`. Missing features: [known_gaps.md](known_gaps.md).",
        "",
        "Authorization: the checks of Apache Kafka's authorizer, which apply if `authorizer.class.name` is set.",
        "",
        "| Key | API | Versions | Handler | Listeners | Authorization |",
        "| ---: | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {int(api.key)} | {api.key.message_name} | {_versions(api)} | {_link(api)} | {_listeners(api)} "
        f"| {_checks(api)} |"
        for api in APIS
    ]
    for module in dict.fromkeys(api.module for api in APIS):
        lines += ["", f"## {module}", "", _documentation(module)]
    return "\n".join(lines) + "\n"


def _link(api: Api) -> str:
    return f"`server/handlers/{api.module}.py`"


def _listeners(api: Api) -> str:
    return ", ".join(str(kind.name).lower() for kind in Listeners if kind in api.listeners)


def _checks(api: Api) -> str:
    return ", ".join(f"{operation.name} {resource.name}" for operation, resource in api.checks)


def _versions(api: Api) -> str:
    versions = f"{api.min_version}" if api.min_version == api.max_version else f"{api.min_version}-{api.max_version}"
    if api.lowest_served > api.min_version:
        versions += f" (served from {api.lowest_served})"
    return versions


def _documentation(module: str) -> str:
    source = Path(__file__).parents[1] / "handlers" / f"{module}.py"
    return ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    print(page(), end="")
