"""`python -m double_backward train.py ARGS`: run a script, then say what it differentiates twice.

The script runs as `python train.py ARGS` would run it. At its end, or when it raises or is stopped
with Ctrl-C, the table of `diagnose_all` goes to stderr, for every custom Function that it has
differentiated twice or more. The exit status is the script's own.
"""

import argparse
import importlib.util
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from types import CodeType, ModuleType, TracebackType
from typing import Any

import torch

import double_backward
from double_backward.diagnosis.training_step import Met, StepDiagnosis
from double_backward.lines import OURS

TWICE = 2


def main() -> None:
    options = _options()
    met = Met()
    error: BaseException | None = None
    leave: Any = 0
    try:
        module, code = _module(options) if options.m else _script(options)
        sys.modules["__main__"] = module  # stays: what is diagnosed may be looked up there
        with met.listening(), _remedy(options):
            exec(code, module.__dict__)
    except SystemExit as ending:
        leave = ending.code
    except BaseException as raised:  # shown as Python would
        error, leave = raised, 1
        sys.excepthook(type(error), error, _of_the_script(error).__traceback__)
    with suppress(Exception):  # a closed pipe: the script's own end is what counts
        sys.stdout.flush()
    with _reported():
        _report(options, met.diagnosed(error, at_least=TWICE))
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    sys.exit(leave)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m double_backward",
        description="Run a script, then diagnose each Function that it differentiates twice.",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--detect", action="store_true", help="run it inside detect_intermediates()")
    ways.add_argument(
        "--recompute", action="store_true", help="run it inside recompute_intermediates()"
    )
    parser.add_argument("--json", metavar="FILE", help="write the table there too, as JSON")
    parser.add_argument("-m", action="store_true", help="SCRIPT is a module, as in python -m")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.m and not os.path.isfile(options.script):
        parser.error(f"there is no file {options.script}")
    if options.json:
        options.json = os.path.abspath(options.json)  # the script may go elsewhere
        try:
            open(options.json, "a").close()
        except OSError as error:  # now, not when hours of training are over
            parser.error(f"--json: {error}")
    return options


def _script(options: argparse.Namespace) -> tuple[ModuleType, CodeType]:
    """A file, with the names that Python gives it."""
    path = os.path.abspath(options.script)
    sys.argv[:] = [options.script, *options.args]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    return _named(__file__=path, __package__=None, __spec__=None, __cached__=None), code


def _module(options: argparse.Namespace) -> tuple[ModuleType, CodeType]:
    """A module, or the `__main__` of a package."""
    name, spec = options.script, importlib.util.find_spec(options.script)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    loader: Any = spec.loader if spec else None
    code = loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None
    if spec is None or code is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    sys.argv[:] = [spec.origin or name, *options.args]
    names = {"__file__": spec.origin, "__package__": spec.parent, "__cached__": spec.cached}
    return _named(__spec__=spec, __loader__=spec.loader, **names), code


def _named(**names: Any) -> ModuleType:
    module = ModuleType("__main__")
    module.__dict__.update(names, __builtins__=__builtins__)
    return module


def _remedy(options: argparse.Namespace) -> AbstractContextManager[None]:
    if options.detect:
        return double_backward.detect_intermediates()
    return double_backward.recompute_intermediates() if options.recompute else nullcontext()


def _inside(options: argparse.Namespace) -> str:
    ways = [f"{way}_intermediates()" for way in ("detect", "recompute") if vars(options)[way]]
    about = "the table is about the Functions alone"
    return "".join(f" (the script ran inside {way}; {about})" for way in ways)


def _of_the_script(error: BaseException) -> BaseException:
    """The error as it was without us: no frame of this package, here or in what it came from."""
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
    if way.tb_frame.f_code.co_filename.startswith((OURS + os.sep, "<frozen ")):
        return following
    return TracebackType(following, way.tb_frame, way.tb_lasti, way.tb_lineno)


@contextmanager
def _reported() -> Iterator[None]:
    """Inside, an error of ours is shown, and does not take the place of the script's own end."""
    try:
        yield
    except Exception:
        traceback.print_exc(file=sys.__stderr__)


def _report(options: argparse.Namespace, result: StepDiagnosis) -> None:
    said = f"no custom Function is differentiated {TWICE} times or more."
    if result.rows:
        said = f"differentiated {TWICE} times or more{_inside(options)}:\n"
        said += str(replace(result, error=None))
    print(f"\ndouble_backward: {said}", file=sys.__stderr__)
    if options.json:
        about = {"double_backward": double_backward.__version__, "torch": torch.__version__}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**about, "argv": sys.argv, **result.to_dict()}, file, indent=2)


if __name__ == "__main__":
    main()
