"""Prints the code that the compiler generates for a message: `python -m moldau.protocol FetchRequest 12`."""

from __future__ import annotations

import argparse
import difflib
import signal
import sys
from importlib import import_module

from .api import message_class, message_classes
from .compiler import decoder_source, encoder_source
from .schema import Message


def find_message(name: str) -> type[Message]:
    """The message class `name`, or `package.module:Class` for one declared elsewhere; LookupError if unknown."""
    if ":" not in name:
        try:
            return message_class(name)
        except KeyError:
            names = [cls.__name__ for cls in message_classes()]
            near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise LookupError(f"unknown message {name!r}{hint} (--list lists all messages)") from None
    module_name, _, class_name = name.partition(":")
    try:
        cls = getattr(import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"cannot find {name!r}: {error}") from None
    if not (isinstance(cls, type) and issubclass(cls, Message)):
        raise LookupError(f"{name!r} is not a message")
    return cls


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m moldau.protocol",
        description="Print the Python code that encodes and decodes one version of a message.",
        epilog="example: python -m moldau.protocol FetchRequest 12",
    )
    parser.add_argument("message", nargs="?", help="class name, e.g. FetchRequest; package.module:Class works, too")
    parser.add_argument("version", nargs="?", type=int, help="its version; default: the latest")
    parser.add_argument("--direction", choices=("encode", "decode"), help="default: both")
    parser.add_argument("--list", action="store_true", help="list all messages with their versions")
    options = parser.parse_args(arguments)
    if options.list:
        for cls in sorted(message_classes(), key=lambda cls: cls.__name__):
            print(f"{cls.__name__:40} {cls.VERSIONS}")
        return 0
    if options.message is None:
        parser.error("give a message name, or use --list")
    try:
        cls = find_message(options.message)
    except LookupError as error:
        parser.error(str(error))
    if not cls.VERSIONS:
        parser.error(f"{cls.__name__} has no supported versions")
    version = cls.VERSIONS.highest if options.version is None else options.version
    if version not in cls.VERSIONS:
        parser.error(f"{cls.__name__} has no version {version}; it has {cls.VERSIONS}")
    for direction, writer in (("decode", decoder_source), ("encode", encoder_source)):
        if options.direction in (None, direction):
            print(f"# <moldau {cls.__name__} v{version} {direction}>")
            print(writer(cls, version)[0])
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it silently
    sys.exit(main())
