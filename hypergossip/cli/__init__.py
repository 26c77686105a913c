"""The command line: one function for each command; its parameters are the options.

What only commands need (tyro, rich, matplotlib, bokeh, scikit-learn) is imported inside them, so
that the library works without.
"""

from __future__ import annotations

import sys

from .demo import demo
from .launch import command as launch_command
from .launch import launch, set_apart
from .reproduce import reproduce
from .terminal import end, forgive_terminals_without_unicode

__all__ = ["demo", "launch", "main", "reproduce"]

_EXTRAS = ("tyro", "rich", "matplotlib", "bokeh", "jinja2", "sklearn")


def main() -> None:
    """Runs the command that the command line names."""
    forgive_terminals_without_unicode()
    try:
        from tyro.conf import FlagCreatePairsOff
        from tyro.extras import SubcommandApp

        app = SubcommandApp()
        for command in (demo, reproduce, launch_command()):
            app.command(command)
        words = sys.argv[1:]
        if words[:1] == ["launch"]:
            words = ["launch", *set_apart(words[1:])]
        description = "Bilevel optimisation over a network without a server."
        app.cli(prog="hypergossip", description=description, args=words, config=(FlagCreatePairsOff,))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        end(2, f"This command needs {package}, which is not installed: pip install 'hypergossip[cli,report,data]'")
    except KeyboardInterrupt:
        end(130, "Interrupted.")


if __name__ == "__main__":
    main()
