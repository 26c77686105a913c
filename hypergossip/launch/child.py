"""`python -m hypergossip.launch.child SCRIPT ARGUMENTS…`: joins the other processes, then runs the script."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from ..processes import Place, faults, runtime, supervisor
from . import codes


def main(arguments: list[str]) -> None:
    """Takes the place that the environment gives, and becomes the script."""
    supervisor.begin(os.environ)
    place = Place.inherited(os.environ)
    if place is None:
        raise SystemExit("No place among other processes is given; start the script with `hypergossip launch`.")
    for stream in (sys.stdout, sys.stderr):  # lines come when they are printed, though it is a pipe that takes them
        stream.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        everyone = runtime.join(place)
    except Exception as error:
        supervisor.failed(error)
        if not supervisor.present():
            print(f"Could not join the other processes: {error}", file=sys.stderr)
        _leave(codes.APART)
    supervisor.joined(everyone)
    _run(arguments)


def _run(arguments: list[str]) -> None:
    """The script as Python would run it.

    After an error the process leaves at once: JAX's own way out waits for all processes, of which
    some may be gone. After a good end that wait is right, and Python's ordinary exit has it.
    """
    sys.argv = arguments
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as exit_:
        if (status := _status(exit_)) != 0:
            _leave(status)
    except KeyboardInterrupt:
        _leave(130)
    except BaseException as error:
        if loss := faults.is_loss(error):
            supervisor.losing(error, faults.told(error))
        else:
            supervisor.failed(error)
        traceback = _of_the_script(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        _leave(codes.LOST if loss else codes.FAULT if faults.is_fault(error) else codes.ERROR)


def _status(exit_: SystemExit) -> int:
    """What Python makes of the argument of sys.exit()."""
    if exit_.code is None:
        return 0
    if isinstance(exit_.code, int):
        return exit_.code & 0xFF
    print(exit_.code, file=sys.stderr)
    return codes.ERROR


def _of_the_script(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames that led to the script."""
    while traceback and traceback.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        traceback = traceback.tb_next
    return traceback


def _leave(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            continue
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
