"""`python -m double_backward train.py ARGS`: run a script, then say what it differentiates twice.

The script runs as `python train.py ARGS` would run it. At its end, or when it raises or is stopped
by Ctrl-C or SIGTERM, the table of `diagnose_all` goes to stderr, for every custom Function that it
has differentiated twice or more. The exit status is the script's own, or with `--strict`, where the
script ended well, `NOT_ALL_RIGHT`.
"""

import argparse
import importlib.util
import io
import json
import os
import pkgutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

import torch

import double_backward
from double_backward.diagnosis.training_step import Met, StepDiagnosis
from double_backward.lines import OURS
from double_backward.methods import is_named

TWICE = 2
NOT_ALL_RIGHT = 3  # the exit status; 1 is an error of the script, 2 a wrong argument


class Terminated(BaseException):
    """In the place of SIGTERM, so that the table comes before the end."""


def main() -> None:
    options = _options()
    met = Met()
    error: BaseException | None = None
    leave: Any = 0
    try:
        with _terminating():
            module, code = _found(options)
            sys.modules["__main__"] = module  # stays: what is diagnosed may be looked up there
            with met.listening(), _remedy(options):
                exec(code, module.__dict__)
    except SystemExit as ending:
        leave = ending.code
    except Terminated as signalled:  # Python would say nothing
        error = signalled
    except BaseException as raised:  # shown as Python would
        error, leave = raised, 1
        sys.excepthook(type(error), error, _of_the_script(error).__traceback__)
    with suppress(Exception):  # a closed pipe: the script's own end is what counts
        sys.stdout.flush()
    all_right = False
    with _reported():
        met.ignored = _ignored(options, met)
        result = met.diagnosed(error, at_least=TWICE)
        all_right = result.ok
        _report(options, result)
    for stop, of_signal in ((KeyboardInterrupt, signal.SIGINT), (Terminated, signal.SIGTERM)):
        if isinstance(error, stop):
            signal.signal(of_signal, signal.SIG_DFL)
            signal.raise_signal(of_signal)
    ended_well = leave is None or (isinstance(leave, int) and leave == 0)
    sys.exit(NOT_ALL_RIGHT if options.strict and ended_well and not all_right else leave)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m double_backward",
        usage="%(prog)s [-h] [--version] [--detect | --recompute] [--strict]\n"
        "                                 [--ignore NAME] [--json FILE] [-m] SCRIPT [ARGS ...]",
        description="Run a script, then diagnose each Function that it differentiates twice.",
        epilog="The exit status is the script's own.",
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
        help="the first derivative of this Function (Name or module.Name) is meant as it is, its "
        "second is judged; --detect leaves it alone. May be repeated",
    )
    parser.add_argument("--json", metavar="FILE", help="write the table there too, as JSON")
    parser.add_argument("-m", action="store_true", help="SCRIPT is a module, as in python -m")
    parser.add_argument(
        "script", metavar="SCRIPT", help="a file, or a folder or zip file that holds __main__.py"
    )
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="what it is given")
    options = parser.parse_args()
    if not options.m and not os.path.exists(options.script):
        parser.error(f"there is no file {options.script}")
    if options.json:
        options.json = os.path.abspath(options.json)  # the script may go elsewhere
        try:
            _check_writable(options.json)
        except OSError as error:  # now, not when hours of training are over
            error.filename = options.json
            parser.error(f"--json: {error}")
    return options


def _is_special(path: str) -> bool:
    """A device or a pipe: it is written to, never replaced."""
    return os.path.exists(path) and not os.path.isfile(path)


def _check_writable(path: str) -> None:
    """Raise OSError where it is not, and leave everything as it is."""
    if _is_special(path):
        open(path, "a").close()
    else:
        tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))).close()


def _write(path: str, text: str) -> None:
    """The whole of it or nothing: until then, what was there stays there."""
    if _is_special(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    path = os.path.realpath(path)  # a link stays one
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.remove(beside)
        raise


@contextmanager
def _terminating() -> Iterator[None]:
    """Inside, SIGTERM raises, unless somebody has other plans with it; once, then it ends all."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated("SIGTERM")

    _keep_from_children(handler)
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _keep_from_children(handler: Any) -> None:
    """SIGTERM ends what is forked, as it would, also where it comes at once: held back until then,
    since Python forgets what came while it forked."""
    if not hasattr(os, "register_at_fork"):
        return
    thread = threading.local()

    def before() -> None:
        thread.mask = None
        if signal.getsignal(signal.SIGTERM) is handler:
            thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def in_parent() -> None:
        if thread.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, thread.mask)

    def in_child() -> None:
        if thread.mask is not None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, thread.mask)

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _found(options: argparse.Namespace) -> tuple[ModuleType, CodeType]:
    if options.m:
        return _module(options)
    importable = pkgutil.get_importer(options.script) is not None
    return _folder(options) if importable else _script(options)


def _script(options: argparse.Namespace) -> tuple[ModuleType, CodeType]:
    """A file, with the names that Python gives it."""
    path = os.path.abspath(options.script)
    sys.argv[:] = [options.script, *options.args]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    return _named(__file__=path, __package__=None, __spec__=None, __cached__=None), code


def _folder(options: argparse.Namespace) -> tuple[ModuleType, CodeType]:
    """The `__main__` of a folder or of a zip file, which is then where imports look first."""
    path = os.path.abspath(options.script)
    sys.path[: not sys.flags.safe_path] = [path]
    spec = PathFinder.find_spec("__main__", [path])
    code = _code(spec)
    if spec is None or code is None:
        sys.exit(f"{sys.executable}: can't find '__main__' module in {path!r}")
    sys.argv[:] = [options.script, *options.args]
    return _of_spec(spec), code


def _module(options: argparse.Namespace) -> tuple[ModuleType, CodeType]:
    """A module, or the `__main__` of a package."""
    name, spec = options.script, importlib.util.find_spec(options.script)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = _code(spec)
    if spec is None or code is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    sys.argv[:] = [spec.origin or name, *options.args]
    return _of_spec(spec), code


def _code(spec: ModuleSpec | None) -> CodeType | None:
    loader: Any = spec.loader if spec else None
    return loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None


def _of_spec(spec: ModuleSpec) -> ModuleType:
    names = {"__file__": spec.origin, "__package__": spec.parent, "__cached__": spec.cached}
    return _named(__spec__=spec, __loader__=spec.loader, **names)


def _named(**names: Any) -> ModuleType:
    module = ModuleType("__main__")
    module.__dict__.update(names, __builtins__=__builtins__)
    return module


def _remedy(options: argparse.Namespace) -> AbstractContextManager[None]:
    if options.detect:
        return double_backward.detect_intermediates(ignore=options.ignore)
    return double_backward.recompute_intermediates() if options.recompute else nullcontext()


def _ignored(options: argparse.Namespace, met: Met) -> tuple[type, ...]:
    """The classes that `--ignore` names, of those that were met."""
    functions = [each for each in met.functions if isinstance(each, type)]
    for name in options.ignore:
        if not any(is_named(function, [name]) for function in functions):
            said = f"--ignore {name}: the script applies no custom Function of this name."
            print(f"\ndouble_backward: {said}", file=sys.__stderr__)
    return tuple(function for function in functions if is_named(function, options.ignore))


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
        data = {**about, "argv": sys.argv, **result.to_dict()}
        _write(options.json, json.dumps(data, indent=2))


if __name__ == "__main__":
    main()
