"""docs/apis.md from the table of `dispatch`: ``python -m moldau.server.api_page > docs/apis.md``."""

from __future__ import annotations

import ast
from pathlib import Path

from .dispatch import APIS, Api


def page() -> str:
    """The page in Markdown: every API with its versions, and what its handler's module says of itself."""
    lines = [
        "# APIs",
        "",
        "What this server serves, and answers ApiVersions with; the versions are those of Apache Kafka 4.3.",
        "This page is made from the table in `server/dispatch.py`. What is missing: [known_gaps.md](known_gaps.md).",
        "",
        "| Key | API | Versions | Handler |",
        "| ---: | --- | --- | --- |",
    ]
    lines += [f"| {int(api.key)} | {api.key.message_name} | {_versions(api)} | {_link(api)} |" for api in APIS]
    for module in dict.fromkeys(api.module for api in APIS):
        lines += ["", f"## {module}", "", _documentation(module)]
    return "\n".join(lines) + "\n"


def _link(api: Api) -> str:
    return f"`server/handlers/{api.module}.py`"


def _versions(api: Api) -> str:
    versions = f"{api.min_version}" if api.min_version == api.max_version else f"{api.min_version}-{api.max_version}"
    if api.lowest_served > api.min_version:
        versions += f" (served from {api.lowest_served})"
    return versions


def _documentation(module: str) -> str:
    source = Path(__file__).with_name("handlers") / f"{module}.py"
    return ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    print(page(), end="")
