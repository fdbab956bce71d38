"""Links of pages to files of the repository, which are not part of the site.

The pages are also read in the repository, where ``[...](../log/names.py)`` works. On the site such a link goes to
``repo_url`` of mkdocs.yml, and is plain text while the project has no public address. A link to a file that does not
exist is a warning, and so an error of ``mkdocs build --strict``.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\.?/)*[^)\s:#]+)(#[^)\s]*)?\)")
logger = logging.getLogger("mkdocs.plugins.moldau")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace the links of a page that leave docs/."""
    folder = (Path(config.docs_dir) / page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups()
        path = (folder / target).resolve()
        if path.is_relative_to(config.docs_dir) and path.suffix != ".json":
            return link[0]
        if not path.exists():
            logger.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        if image or not path.is_relative_to(ROOT):
            return link[0]
        if not config.repo_url:
            return str(text)
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path.relative_to(ROOT)}{anchor or ''})"

    return _LINK.sub(replaced, markdown)
