"""The failure of a command: one message that states what happened and what to do."""

import sys

import click


class Failure(click.ClickException):
    """Ends the command with ``moldau: <message>`` on standard error and exit code 1."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        print(f"moldau: {self.message}", file=sys.stderr)


class Interrupted(Failure):
    """Ends the command after Ctrl-C with a message about the work done so far."""

    exit_code = 130

    def show(self, file: object = None) -> None:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the terminal echoed ^C
        super().show()
