"""The entry point of ``moldau`` and ``python -m moldau``: runs a command and turns failures into one line.

``moldau serve`` bypasses click, whose import takes as long as the rest of a server's start; only its help and usage
errors go through click. Exit codes: 0 success, 1 failure (one line on standard error states the reason), 2 usage error,
130 interrupted.

An unexpected exception is also reported in one line, unless MOLDAU_TRACEBACK is set.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command in ``arguments`` (default: those of the process) and exit."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        sys.exit(_run(given))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of standard output has closed the pipe (`moldau consume ... | head`). Redirect standard output, or
        # Python would report another error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILURE)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        from . import serve

        options = serve.parse(arguments[1:])
        if options is not None:
            return serve.run(options)
    from . import commands

    try:
        return commands.run(arguments)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        if os.environ.get("MOLDAU_TRACEBACK"):
            raise
        print(f"moldau: {type(error).__name__}: {error}", file=sys.stderr)
        print("This is a bug in moldau; set MOLDAU_TRACEBACK=1 to see the traceback.", file=sys.stderr)
        return EXIT_FAILURE
