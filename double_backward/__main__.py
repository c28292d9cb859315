"""`python -m double_backward train.py ARGS`: run a script, then diagnose its Functions.

The script runs as `python train.py ARGS` would run it. When it ends, raises, or is stopped by
Ctrl-C or SIGTERM, the table of `diagnose_all` is written to stderr, with each custom Function that
was differentiated twice or more, or once and wrongly. The exit status is the script's own; with
`--strict` it is `NOT_ALL_RIGHT` if the script ended well and a Function is wrong or not checked.
"""

import argparse
import json
import os
import pkgutil
import runpy
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

import torch

import double_backward
from double_backward.diagnosis.training_steps.training_step import Met, StepDiagnosis
from double_backward.failures import handed_over, own
from double_backward.phrases import Phrase, both
from double_backward.places import OURS

TWICE = 2
WITHIN = 2.0  # seconds for the table of a script that is told to stop: it may be killed soon
NOT_ALL_RIGHT = 3  # exit status; 1 is for an error of the script, 2 for a wrong argument


def main() -> None:
    options = _options()
    met = Met(options.ignore)
    error: BaseException | None = None
    leave: Any = 0
    told: list[int] = []
    try:
        with _terminating() as told, met.listening(), _remedy(options):
            _run(options)
    except SystemExit as ending:
        leave = ending.code
    except BaseException as raised:  # shown as Python would show it
        ours = own(raised)
        if ours is not None:
            sys.exit(str(ours))
        error, leave = raised, 1
        sys.excepthook(type(error), error, _of_the_script(error).__traceback__)
    with suppress(Exception):  # such as a closed pipe: the script's own end counts
        sys.stdout.flush()
    all_right = False
    try:
        result = met.diagnosed(error, at_least=1, within=WITHIN if told else None)
        all_right = result.ok
        _report(options, result)
    except Exception as raised:  # an error of ours does not replace the script's own end
        print(own(raised) or traceback.format_exc(), file=sys.__stderr__)
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    ended_well = leave is None or (isinstance(leave, int) and leave == 0)
    sys.exit(NOT_ALL_RIGHT if options.strict and ended_well and not all_right else leave)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m double_backward",
        usage="%(prog)s [-h] [--version] [--detect | --recompute] [--strict]\n"
        "                                 [--ignore NAME] [--json FILE] [-m] SCRIPT [ARGS ...]",
        description="Run a script, then diagnose each Function that it differentiates twice.",
        epilog="The exit status is the script's own, or with --strict that of the table.",
    )
    version = f"double_backward {double_backward.__version__}, torch {torch.__version__}"
    parser.add_argument("--version", action="version", version=version)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--detect", action="store_true", help="run it inside detect_intermediates()")
    ways.add_argument(
        "--recompute", action="store_true", help="run it inside recompute_intermediates()"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help=f"where the script ends well, end with status {NOT_ALL_RIGHT} if a Function is wrong "
        "or could not be checked",
    )
    parser.add_argument(
        "--ignore",
        metavar="NAME",
        action="append",
        default=[],
        help="the first derivative of this Function (Name, module.Name, my::operator) is meant as "
        "it is, its second is judged; --detect and --recompute leave it alone. May be repeated",
    )
    parser.add_argument("--json", metavar="FILE", help="write the table there too, as JSON")
    parser.add_argument("-m", action="store_true", help="SCRIPT is a module, as in python -m")
    parser.add_argument(
        "script", metavar="SCRIPT", help="a file, or a folder or zip file that holds __main__.py"
    )
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="what it is given")
    options = parser.parse_args()
    if not options.m and not os.path.exists(options.script):
        parser.error(both(Phrase("there is no file {}", options.script)))
    if options.json:
        options.json = os.path.abspath(options.json)  # the script may change its folder
        try:
            open(options.json, "a").close()
        except OSError as error:  # now, not when hours of training are over
            parser.error(f"--json: {error}")
    return options


@contextmanager
def _terminating() -> Iterator[list[int]]:
    """Inside, SIGTERM ends the script as `sys.exit` does, so that the table is written, unless
    there is another handler. A second SIGTERM, or one to a forked process, ends that process at
    once. Yields a list to which the number of the signal is appended."""
    told: list[int] = []
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield told
        return

    def handler(number: int, frame: FrameType | None) -> None:
        told.append(number)
        put_back()
        sys.exit(128 + number)  # the exit status that a shell gives

    def put_back() -> None:
        if signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=put_back)
    signal.signal(signal.SIGTERM, handler)
    try:
        yield told
    finally:
        put_back()


def _run(options: argparse.Namespace) -> None:
    """Run SCRIPT as Python does: as `__main__`, with its arguments and its `sys.path`."""
    name, path = options.script, os.path.abspath(options.script)
    sys.argv[:] = [name, *options.args]
    main = sys.modules["__main__"] = ModuleType("__main__")  # stays for the diagnosis
    if options.m:
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # what `python -m` calls
    elif pkgutil.get_importer(name):  # a folder or a zip file
        sys.path[: not sys.flags.safe_path] = [path]
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
    else:
        if not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(os.path.realpath(path))
        main.__file__ = path
        code = handed_over(compile, Path(path).read_bytes(), path, "exec")
        handed_over(exec, code, vars(main))


def _remedy(options: argparse.Namespace) -> AbstractContextManager[None]:
    if options.detect:
        return double_backward.detect_intermediates(ignore=options.ignore)
    if options.recompute:
        return double_backward.recompute_intermediates(ignore=options.ignore)
    return nullcontext()


def _inside(options: argparse.Namespace) -> str:
    said = " (the script ran inside {}; the table is about the Functions alone)"
    for way in ("detect", "recompute"):
        if vars(options)[way]:
            return Phrase(said, f"{way}_intermediates()")
    return ""


def _print(said: str, rest: str = "") -> None:
    print(f"\ndouble_backward: {both(said)}{rest}", file=sys.__stderr__)


def _of_the_script(error: BaseException) -> BaseException:
    """The error without the frames of this package, in it and in the errors that led to it."""
    chain: list[BaseException] = [error]
    for each in chain:
        following = (each.__cause__, each.__context__)
        chain += [e for e in following if e is not None and not any(e is c for c in chain)]
        each.with_traceback(_without_ours(each.__traceback__))
    return error


def _without_ours(way: TracebackType | None) -> TracebackType | None:
    if way is None:
        return None
    following = _without_ours(way.tb_next)
    if way.tb_frame.f_code.co_filename.startswith((OURS, "<frozen ")):
        return following
    return TracebackType(following, way.tb_frame, way.tb_lasti, way.tb_lineno)


def _report(options: argparse.Namespace, result: StepDiagnosis) -> None:
    """Write the table. A Function that is differentiated once is in it only if it is wrong."""
    for name in result.unmet:
        _print(Phrase("--ignore {}: the script applies no custom Function of this name.", name))
    result = replace(result, rows=[r for r in result.rows if r.order >= TWICE or not r.ok])
    if result.rows:
        said = "differentiated {} times or more{}:"
        if any(row.order < TWICE for row in result.rows):
            said = "differentiated {} times or more, or once and not rightly{}:"
        table = str(replace(result, error=None, unmet=()))
        _print(Phrase(said, TWICE, _inside(options)), f"\n{table}")
    else:
        said = (
            "no custom Function is differentiated {} times or more. What the script cuts off "
            "outside of Functions is not looked at: diagnose_all tells of that."
        )
        _print(Phrase(said, TWICE))
    if options.json:
        about = {"double_backward": double_backward.__version__, "torch": torch.__version__}
        data = {**about, "argv": sys.argv, **result.to_dict()}
        Path(options.json).write_text(json.dumps(data, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
