"""RESULTS.md, its chart, and README's sentence: all made from the stored numbers."""

import re
import textwrap
from collections import Counter
from itertools import groupby
from pathlib import Path

from . import chart, conditions, published, reports, table
from .documented import documented, first_order
from .listed import CALLS, last
from .reached import KNOWN, Known
from .table import FIRST, GUARDED, READINGS, RIGHT, SURROGATE, WRONG

HERE = Path(__file__).parent
BY_HAND = HERE / "by_hand.py"
PAGE, CHART = HERE / "RESULTS.md", HERE / "chart.svg"
README, CHINESE_README = HERE.parent / "README.md", HERE.parent / "README.zh-CN.md"
LESSONS = {
    "intermediate_saved": "3_saving_intermediates",
    "input_copy_saved": "1_saving_inputs",
    "intermediate_on_ctx": "4_what_not_to_do",
    "changed_by_create_graph": "4_what_not_to_do",
    "result_of_meant_gradient": "6_your_own_function",
}
OTHER_LESSON = "5_untracked_backward"
EXAMPLE = "entmax:Entmax15LossFunction"  # the row by which it is said how rows are read
SENTENCE = re.compile(r"(<!-- survey -->\n).*?(\n<!-- /survey -->)", re.S)


def write(rows, numbers):
    PAGE.write_text(page(rows, numbers), encoding="utf-8")
    CHART.write_text(picture(rows), encoding="utf-8")
    for readme, said in ((README, sentence(rows)), (CHINESE_README, chinese(rows))):
        text = readme.read_text(encoding="utf-8")
        readme.write_text(SENTENCE.sub(rf"\g<1>{said}\2", text), encoding="utf-8")


def sentence(rows):
    """What README says of the survey."""
    said = (
        "We called {whole}. {wrong} of the {counted} give a "
        "wrong second derivative without an error: {kept} keep a tensor that forward made "
        "(lessons 1, 3 and 4), {cut} compute in backward where autograd cannot follow (lesson 5), "
        "{other} do something else. {by_backward} more do it by `.backward()` alone, "
        "{leaking} past the guard of `once_differentiable`, and {first} have a wrong first "
        "derivative. [The survey](survey/RESULTS.md) has them all, and {calls} documented calls to "
        "type."
    ).format(whole=whole(rows), **told(rows))
    return filled(said, 120)


def filled(text, width):
    """In lines of that width; an address is never broken."""
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def chinese(rows):
    """The same in README.zh-CN.md, in one line: a line's end would be shown as a space."""
    return (
        "我们调用了 {packages} 个已发布软件包里的 {functions} 个自定义 "
        "Function 和 {operators} 个注册的算子：{surrogates} 个是替代梯度，{apart} 个"
        "已弃用、没有用到、本来就是有意的，或者会给出警告，其余 {counted} 个是用户会碰到的。"
        "这 {counted} 个里有 {wrong} 个，二阶导数是错的，却不报错："
        "{kept} 个留下了 forward 里算出的张量（第 1、3、4 课），{cut} 个"
        "在 backward 里用了 autograd 跟踪不到的计算（第 5 课），{other} 个是别的原因。"
        "另有 {by_backward} 个只在用 `.backward()` 时这样，"
        "{leaking} 个绕过了 `once_differentiable` 的保护，"
        "{first} 个连一阶导数也是错的。全部都在[调查](survey/RESULTS.md)（英文）里，"
        "还有 {calls} 个写进文档、可以照着输入的调用。"
    ).format(**told(rows))


def whole(rows):
    """How many there are, and how many of them are counted, in one clause."""
    return (
        "{functions} custom Functions and {operators} registered operators of {packages} published "
        "packages: {surrogates} surrogates, {apart} that are deprecated, applied nowhere, meant as "
        "they are, or warned of, and {counted} that users meet"
    ).format(**told(rows))


def told(rows):
    """Dict of the numbers that README tells, by name."""
    kept, cut = (table.kinds(rows)[kind] for kind in table.KINDS)
    wrong = len(table.read_as(rows, WRONG))
    return {
        "functions": len(of_kind(rows, "Function")),
        "operators": len(of_kind(rows, "operator")),
        "wrong_operators": len(of_kind(table.read_as(rows, WRONG), "operator")),
        "calls": len(documented()),
        "packages": len({row["package"] for row in rows}),
        "surrogates": sum(bool(row["surrogate"]) for row in rows),
        "apart": sum(bool(row["apart"] and not row["surrogate"]) for row in rows),
        "counted": len(table.counted(rows)),
        "wrong": wrong,
        "kept": kept,
        "cut": cut,
        "other": wrong - kept - cut,
        "others": len(table.counted(rows)) - wrong,
        "right": len(table.read_as(rows, RIGHT)),
        "loud": len(table.read_as(rows, table.LOUD)),
        "by_backward": len(table.read_as(rows, table.BACKWARD)),
        "guarded": len(table.read_as(rows, GUARDED)),
        "leaking": len(leaking(rows)),
        "first": len(table.read_as(rows, FIRST)),
    }


def of_kind(rows, kind):
    return [row for row in rows if row["kind"] == kind]


def leaking(rows):
    """Guarded ones that give a wrong number all the same."""
    guarded = table.read_as(rows, GUARDED)
    return [row for row in guarded if row["got"] not in ("raises", row["expected"])]


def page(rows, numbers):
    folders = published.read()
    parts = [
        head(rows, folders),
        calls(rows, numbers, folders),
        at_first_order(rows, numbers, folders),
    ]
    parts += [came_out(rows), every(rows, folders), HOW]
    return "\n".join(part.strip() + "\n" for part in parts)


def head(rows, folders):
    """What a reader wants to know first, then where the numbers come from, then a row."""
    numbers = told(rows)
    some = sum(bool(conditions.sentence(r["arguments"])) for r in table.read_as(rows, WRONG))
    (example,) = (row for row in rows if row["function"] == CALLS[EXAMPLE].function)
    lesson = LESSONS[example["cause"]]
    said = (
        "**{wrong} of {counted} published Functions and operators give a wrong second derivative "
        "without an error**, with which a gradient penalty, a force loss, a PINN or a "
        "Hessian-vector product goes on. [Each has a row](#every-function-and-operator), by "
        "package, with the right number and the cause; {calls} [documented "
        "calls](#documented-calls) can be typed.",
        "Of the other {others}, {right} are right, {loud} raise or give NaN, {first} have a wrong "
        "first derivative already, {by_backward} are wrong by `.backward()` alone, and {guarded} "
        "are declared `once_differentiable`, which does not raise everywhere "
        "([what came out](#what-came-out)).",
        "Where {counted} comes from: {all} were differentiated twice, {functions} custom Functions "
        "and {operators} registered operators of {packages} packages, with small, realistic "
        "inputs, {when}. Not counted are {surrogates} surrogate gradients, which are no derivative "
        "by design, and {apart} that are deprecated, applied nowhere, meant as they are, or warned "
        "of; that leaves {counted}. Of the {wrong}, {wrong_operators} are operators, and {some} "
        "are wrong by some arguments only; their rows say by which.",
        "This is no list of bugs: most of these packages promise first derivatives, and keep that "
        "promise.",
        "A row:",
    )
    row = (
        "That is: where an operation follows `{reached}`, autograd gives {got} for a second "
        "derivative that is {expected}, because of a tensor that forward computed and saved "
        f"([lesson {lesson[0]}](../notebooks/{lesson}.ipynb)). "
        "[How to read a row, and check it](#how-to-read-a-row-and-check-it) says the rest."
    ).format(**example)
    numbers |= {"some": some, "when": when(rows), "all": len(rows)}
    lines = [filled(words.format(**numbers), 99) for words in said]
    lines += [line_of(example, folders), filled(row, 99)]
    top = "<!-- Written by `make survey`, not by hand. -->"
    title = "# Published Functions and operators, differentiated twice"
    return "\n\n".join([f"{top}\n{title}", *lines])


def when(rows):
    first, last = min(row["date"] for row in rows), max(row["date"] for row in rows)
    return f"on {last}" if first == last else f"from {first} to {last}"


def calls(rows, numbers, folders):
    """The documented calls: a table, then each program with what it printed."""
    listed = documented()
    lines = [
        "## Documented calls",
        "",
        "Each is a public call, as its package documents it. Autograd differentiates it twice, and "
        "gives a wrong number without an error. Two of them do so by `.backward()` alone, or past "
        "the guard of `once_differentiable`, and are [counted](#what-came-out) by themselves.",
        "",
        "| call | autograd's second derivative | the right one | what to call instead |",
        "|---|---:|---:|---|",
        *(table_line(each, numbers[name]) for name, each in listed.items()),
    ]
    text = BY_HAND.read_text(encoding="utf-8").partition('"""\n\n')[2].strip()
    lines += [
        "",
        "To type one of them, begin with these lines, in Python 3.11 or one that the package "
        "allows. `second` asks autograd twice, `differences` takes differences of the first "
        "derivative:",
        "",
        f"```python\n{text}\n```",
        *(program(each, numbers[name], rows, folders) for name, each in listed.items()),
    ]
    return "\n".join(lines)


def at_first_order(rows, numbers, folders):
    """The calls with a wrong first derivative, in the same form, their programs in a fold."""
    listed = first_order()
    counted = len(table.read_as(rows, FIRST))
    lines = [
        "## Wrong at first order already",
        "",
        f"In {len(listed)} of them ({counted} of the {len(table.counted(rows))}, and "
        f"{len(listed) - counted} that are set apart below) something comes before the second "
        "derivative: backward does not return the first one, and nothing says that this is meant. "
        "A training by first derivatives is concerned.",
        "",
        "| call | autograd's first derivative | the right one | what to call instead |",
        "|---|---:|---:|---|",
        *(table_line(each, numbers[name]) for name, each in listed.items()),
        "",
        "<details><summary>The programs, with the conditions and what the source shows</summary>",
        *(program(each, numbers[name], rows, folders) for name, each in listed.items()),
        "",
        "</details>",
    ]
    return "\n".join(lines)


def table_line(each, found):
    return (
        f"| [`{each.call}`](#{anchor(each.title)}) | {found['got']} | {found['expected']} "
        f"| {each.instead or '-'} |"
    )


def program(each, found, rows, folders):
    """A call under its title: where it is wrong, its program, what that printed."""
    function = CALLS[each.function].function
    (row,) = (row for row in rows if row["function"] == function)
    address = published.link(row["source"], row["package"], row["version"], folders)
    lines = [
        "",
        f"### {each.title}",
        "",
        f"`{each.call}`, {row['package']} {row['version']}, [{row['source']}]({address}). "
        f"Wrong: {each.where}. Install: `{reports.install(each, rows)}`.",
        "",
        f"```python\n{typed(each)}\n```",
        "",
        f"```\n{found['got']} {found['expected']}\n```",
    ]
    said = [f"What the source shows: {each.why}."] if each.why else []
    said += [f"Instead: {each.instead}, which gives {found['instead']}."] if each.instead else []
    said += [f"Its package on second derivatives: {each.promise}."] if each.promise else []
    said += [f"Discussed: {each.thread}."] if each.thread else []
    if found["patched"]:
        change = f"[this change](patches/{each.name}.patch)"
        said += [f"With {change} of the package the program prints {found['patched']}."]
    return "\n".join([*lines, "", " ".join(said)] if said else lines)


def typed(each):
    """The program, and the line that prints both numbers."""
    if each.order == 1:
        numbers = "by_grad(f, x)", "differences(f, x, lambda f, x: f())"
    else:
        given = "f, x, slope" if "\nslope = " in each.program else "f, x"
        numbers = f"second({given})", f"differences({given})"
    got, expected = numbers
    return f'{each.program}\n\n\nprint(f"{{{got}:.3f}} {{{expected}:.3f}}")'


def anchor(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def picture(rows):
    met = table.counts(table.counted(rows))
    listed = [(reading, met[reading], reading == WRONG) for reading in READINGS if met[reading]]
    title = f"{len(table.counted(rows))} Functions and operators, differentiated twice"
    return chart.bars(title, listed)


def came_out(rows):
    counted = table.counted(rows)
    met = table.counts(counted)
    lines = [
        "## What came out",
        "",
        "![A bar for each reading, with the numbers of the table below; silently wrong stands "
        f"out with {met[WRONG]}.](chart.svg)",
        "",
        "| reading | how many | what it means |",
        "|---|---:|---|",
    ]
    lines += [f"| {name} | {met[name]} | {said} |" for name, said in READINGS.items() if met[name]]
    surrogates = sum(bool(row["surrogate"]) for row in rows)
    apart = [row for row in rows if row["apart"] and not row["surrogate"]]
    of = Counter(row["reading"] for row in apart)
    lines += [
        "",
        f"{len(rows)} were called, {surrogates} of them surrogates (straight-through "
        "estimators, spikes, gradient reversal), for which nobody may want a second derivative. Of "
        f"the other {len(rows) - surrogates}, {len(counted)} are counted, because {len(apart)} are "
        "set apart, each with its reason in its row: "
        + ", ".join(f"{n} {why}" for why, n in Counter(r["apart"] for r in apart).most_common())
        + f". Of these {len(apart)}, {of[WRONG]} are silently wrong, and {of[FIRST]} have a wrong "
        "first derivative.",
        "",
        f"What the {met[WRONG]} silently wrong ones have in common:",
        "",
        "| cause | how many | lesson |",
        "|---|---:|---|",
    ]
    causes = Counter(row["cause"] or "cause_unknown" for row in table.read_as(rows, WRONG))
    for cause, number in causes.most_common():
        lesson = LESSONS.get(cause, OTHER_LESSON)
        lines.append(f"| `{cause}` | {number} | [{lesson[0]}](../notebooks/{lesson}.ipynb) |")
    lines += [
        "",
        f"Of the {met[GUARDED]} guarded ones, {len(leaking(rows))} give a wrong number without an "
        "error in at least one setting: the guard raises only where `grad_out` itself requires "
        "grad, and `torch.autograd.grad` can go past it even there (lesson 4).",
    ]
    return "\n".join(lines)


def every(rows, folders):
    """The rows, folded by package; surrogates in a table of their own."""
    lines = ["## Every Function and operator", "", beside_the_counted(rows), ""]
    plain = [row for row in rows if row["reading"] != SURROGATE]
    plain = sorted(plain, key=lambda row: (row["package"].lower(), row["function"]))
    for package, listed in groupby(plain, key=lambda row: row["package"]):
        listed = list(listed)
        met = Counter(row["reading"] for row in listed)
        said = ", ".join(f"{met[name]} {name}" for name in READINGS if met[name])
        summary = f"{package} {listed[0]['version']}: {said}"
        lines += folded(summary, [line_of(row, folders) for row in listed])
    surrogates = [row for row in rows if row["reading"] == SURROGATE]
    surrogates = sorted(surrogates, key=lambda row: (row["package"].lower(), row["function"]))
    summary = (
        f"{len(surrogates)} of the surrogates: backward is no derivative of forward, by design"
    )
    lines += folded(summary, table_of_surrogates(surrogates))
    return "\n".join(lines)


def table_of_surrogates(rows):
    """A line for each package: of its surrogates the class, and where it stands."""
    yield from ("| package | surrogates, each with its line of the source |", "|---|---|")
    for package, listed in groupby(rows, key=lambda row: row["package"]):
        listed = list(listed)
        said = (f"`{last(row['function'])}` ({known_at(row)})" for row in listed)
        yield f"| {package} {listed[0]['version']} | {', '.join(said)} |"


def known_at(row):
    """The line of its source, and what is known of it besides."""
    known = KNOWN.get(f"{row['package']}:{last(row['function'])}", Known())
    return "; ".join(filter(None, (row["source"], known.where)))


def beside_the_counted(rows):
    """Why the numbers of the folds add up to more than the table of what is counted."""
    counted, said = table.counted(rows), []
    for reading in READINGS:
        here = [row for row in rows if row["reading"] == reading and row not in counted]
        surrogates = sum(bool(row["surrogate"]) for row in here)
        others = [f"{len(here) - surrogates} that are set apart"] * (len(here) > surrogates)
        others += [f"{surrogates} surrogates"] * bool(surrogates)
        if others and reading != SURROGATE:
            of_table = table.counts(counted)[reading]
            parts = " and ".join([f"the table's {of_table}", *others])
            said.append(f"{of_table + len(here)} *{reading}* are {parts}")
    return (
        f"These lines hold all {len(rows)}, so they count more than the table above: "
        f"{'; '.join(said)}. The last line has all other surrogates."
    )


def folded(summary, lines):
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>", ""]


def line_of(row, folders):
    """A row: what came out and why, the numbers, then where it is."""
    name = f"{row['package']}:{last(row['function'])}"
    known = KNOWN.get(name, Known())
    reading = row["reading"]
    if row["surrogate"] and reading != SURROGATE:
        reading += ", surrogate"
    because = "; ".join(filter(None, why(row, known)))
    outcome = f"{reading}: {because}" if because else reading
    where = row["setting"] + (", by .backward()" if row["route"] == "backward" else "")
    differs = ", which `diagnose` does not say" if row["agrees"] == "no" else ""
    numbers = f"Autograd {row['got']}, right {row['expected']} ({where}){differs}."
    address = published.link(row["source"], row["package"], row["version"], folders)
    source = f"[{row['source']}]({address})" + (
        f"; reached by `{row['reached']}`" if row["reached"] else ""
    )
    found = ", ".join(f"`{code}`" for code in table.codes(row) if code != row["cause"])
    said = [f"- **`{name}`** {outcome}.", numbers, f"{source}."]
    said += [f"Also found: {found}."] if found and row["reading"] != SURROGATE else []
    said += [f"[Thread]({known.thread})."] if known.thread else []
    return " ".join(said)


def why(row, known):
    """The cause, and the conditions; a surrogate is what it is by design."""
    if row["reading"] not in (RIGHT, SURROGATE):
        yield known.why or (f"`{row['cause']}`" if row["cause"] else "cause not known")
        yield conditions.sentence(row["arguments"])
    yield known.where
    yield f"not counted: {known.apart}" if known.apart else ""


HOW = """
## How the list was chosen, what it says, how to correct it

By hand: packages on PyPI that define Functions and can be imported without a GPU, with a preference
for those whose users differentiate twice (Gaussian processes, neural ODEs, non-uniform transforms,
invertible networks, rotations, losses). Of operators those were taken that a package registers with
a kernel for the CPU: by `torch.library` in Python, or in C++. Two need a GPU and were not called:
torchmd-net 2.4.10, whose library cannot be loaded without CUDA (`libc10_cuda.so`), and aimnet
0.2.6, which runs its kernels on CUDA alone. Nor were pykeops and openequivariance, which have no
wheel. It is no sample: it does not tell how frequent the mistake is in code at large. A row says of
one Function or operator, at one version, in one call with small inputs in float64, whether its
second derivative is right. Another call of the same Function may come out otherwise; where we know
of one, the row says so. It says nothing of anything else in the package, which may never
differentiate it twice. Where a row has a condition, it holds under that condition alone.

If a row about your package is wrong, unfair or out of date, open an issue with the form "A row of
the survey", or send the call as it should be made. `make survey FUNCTION=package:Name` runs and
stores one row.

## How to read a row, and check it

`make survey` fetches the packages into an environment of their own, `.survey`, and writes
`results.csv`, `documented.csv`, this page and the chart. `python -m survey.reports NAME` prints a
text for the authors of a documented call, with the change where one was tried. One row again, by
hand, is three lines for `.survey/bin/python`:

```python
from survey import diagnose, call

fn, inputs = call("gpytorch:RBFCovariance")
print(diagnose(fn, *inputs))
```

The reading and the cause are what `diagnose` says, unless a note says what the source shows. Codes
of all that it found stand in the row, their words in `findings.csv`.
`right` and `autograd` are a second opinion that uses nothing of it (`survey/compare.py`): one
number uᵀHv with fixed u and v, H the second derivative of a loss made from fn `alone`, or with a
`graph after` it, a `graph before` it, or `both`. The first setting with a wrong number is shown;
where there is none, the first that raises or gives NaN; else the one with the largest number.
`autograd` is what `torch.autograd.grad` gives, asked twice, or `.backward(create_graph=True)` where
that is said. A Function of several tensors was also asked by each of them alone, the others
constant, and across each pair: the column `arguments` of `results.csv` has all of it, and a row
that is wrong by some of them only says by which.

`right` is autograd through plain PyTorch operations that compute the same, or else central
differences of the Function's own first derivative, which is first compared with differences of its
value. A row says so where the second opinion does not come to the same as `diagnose`. File and
line lead to the source of that version, as PyPI or, for torch, GitHub shows it.
"""
