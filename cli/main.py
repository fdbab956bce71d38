"""The entry of ``moldau`` and ``python -m moldau``: finds what is asked for and turns failures into one line.

``moldau serve`` does not go through click, whose import alone costs as much as the rest of a server's start; only its
help and its usage errors do. Exit codes: 0 done, 1 it failed (one line on standard error says why), 2 the command line
makes no sense, 130 interrupted.

Nobody but a developer is helped by a traceback: a mistake of ours is a line too, unless MOLDAU_TRACEBACK is set.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command in ``arguments`` (default: the process's own) and exit."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        sys.exit(_run(given))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has left (`moldau consume ... | head`). Python would complain once more when it
        # flushes standard output at exit, so nothing is left there to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILURE)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        from . import serve

        options = serve.parse(arguments[1:])
        if options is not None:
            return serve.run(options)
    from . import group

    try:
        return group.run(arguments)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        if os.environ.get("MOLDAU_TRACEBACK"):
            raise
        print(f"moldau: {type(error).__name__}: {error}", file=sys.stderr)
        print("This should not happen; with MOLDAU_TRACEBACK=1 set it tells where it did.", file=sys.stderr)
        return EXIT_FAILURE
