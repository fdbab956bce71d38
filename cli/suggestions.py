"""Suggestions for an unknown name: a command, a setting, a field."""

from collections.abc import Iterable
from difflib import get_close_matches

import click


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` Did you mean X?`` for known names similar to ``name``, or an empty string."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    close = [by_lower_case[match] for match in get_close_matches(name.lower(), by_lower_case, n=3)]
    return f" Did you mean {' or '.join(close)}?" if close else ""


class CommandGroup(click.Group):
    """A click group that suggests similar commands for an unknown one, with every version of click."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            suggestion = did_you_mean(name, known) or f" Commands: {', '.join(known)}."
            raise click.UsageError(f"No such command {name!r}.{suggestion}", ctx)
        return super().resolve_command(ctx, args)
