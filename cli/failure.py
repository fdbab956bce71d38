"""A command that cannot do what was asked says so in one message, and what to do about it."""

import sys

import click


class Failure(click.ClickException):
    """Ends the command with ``moldau: <message>`` on standard error and exit code 1."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        print(f"moldau: {self.message}", file=sys.stderr)


class Interrupted(Failure):
    """Ends the command after Ctrl-C, with what had been done until then."""

    exit_code = 130

    def show(self, file: object = None) -> None:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the terminal has echoed ^C
        super().show()
