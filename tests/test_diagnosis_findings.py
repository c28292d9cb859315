"""Each finding of diagnose by itself: what it says of evidence, and when it is silent.

The evidence is made up. What a Function of test_diagnosis_facts gets is not here, but where its
words hang on more than a name.
"""

from dataclasses import replace

import pytest
import torch
from made_evidence import (
    NOT_FINITE,
    RAISES,
    RIGHT,
    UNCLEAR,
    WRONG,
    custom,
    cutting,
    extra,
    failing,
    habit,
    kept,
    measured,
    rows,
    second_function,
    seen,
    sound,
    wrong,
)

from double_backward.check import Checked, Compared
from double_backward.compiled import Region
from double_backward.diagnosis.causes.habits import Habits
from double_backward.diagnosis.causes.not_finite import Broken
from double_backward.diagnosis.conclusions.findings import concluded
from double_backward.diagnosis.measurements.as_called import Compiled
from double_backward.diagnosis.measurements.ways import Situation
from double_backward.diagnosis.preparation.formulas import Row, Setting
from double_backward.diagnosis.preparation.functions import Kind, Lifetime
from double_backward.untracked_steps import Step

e, n = kept("e"), kept("n")
number = replace(kept("r"), bytes=0, shape=())
only_after = {
    Setting.ALONE: Row(RAISES),
    Setting.AFTER: Row(WRONG),
    Setting.BEFORE: Row(RAISES),
    Setting.BOTH: Row(WRONG),
}
twice = {"tied": WRONG, "by_input": RIGHT}
follows = replace(cutting(), checked=Checked(Compared(WRONG, expected=1.0, got=0.95)))
one_bad = rows() | {Setting.BEFORE: Row(WRONG)}
one_not_finite = rows() | {Setting.BEFORE: Row(NOT_FINITE)}
at_third = {"third": rows(WRONG)}
ONCE_MORE = Habits(not_repeatable="a wrong number")
FLOAT32 = {"dtype": torch.float32, "tolerance": 0.01}

REGION = Region("f", "here.py", 3, "here")
SPEAKS = [  # code, evidence, some of its words
    (
        "compiled_region",
        seen(compiled=Compiled((REGION,), rows(WRONG))),
        "region of f (here.py, line 3). A region keeps",
    ),
    (
        "meant",
        seen(measured(first=WRONG), functions=(custom(meant=True),)),
        "backward of F returns is meant",
    ),
    ("differences_disagree", seen(measured(second=UNCLEAR)), "can be trusted at no element"),
    ("computes_in_float32", seen(measured(**FLOAT32)), "last digits are rounding"),
    (
        "judged_roughly",
        seen(measured(second=rows(resolution=0.01, resolution_of_one=0.02), lost="numpy in f")),
        "less than 1% in every element of the second derivative, or of less than 2% in one "
        "alone, would not have been seen. Tangents, which are exact, end at numpy in f",
    ),
    (
        "judged_roughly",
        seen(measured(second=rows(resolution=0.03, resolution_of_one=0.1))),
        "would not have been seen. That is too much to call it right",
    ),
    ("computes_in_16_bits", seen(measured(dtype=torch.bfloat16, tolerance=0.1)), "below 10% do"),
    ("seed_fixed", seen(seeded=True), "with the seed fixed"),
    ("another_point", seen(moved=True), "numbers are from a point beside it"),
    ("backward_not_linear", habit(not_linear="KeyError: 1"), "backward raises: KeyError: 1"),
    (
        "backward_not_repeatable",
        habit(not_repeatable="a wrong number", changes_ctx=("n", "m")),
        "backward gives another number: it changes ctx.n, ctx.m. To",
    ),
    ("backward_not_repeatable", habit(not_repeatable="no"), "gives no: it draws random"),
    (
        "inexact_first_derivative",
        seen(measured(relative=0.01, tolerance=0.1)),
        "lower precision inside. If fn is meant to be so inexact, pass rtol=0.02. So the second "
        "derivative was judged to 10%",
    ),
    (
        "once_differentiable",
        wrong(custom(once=True), second=only_after),
        "a wrong number comes without a message: graph after, both. Do not delete the decorator",
    ),
    (
        "argument_without_graph",
        wrong(sound(handed=("df", "n"))),
        "What apply is handed as df, n changes with the input",
    ),
    (
        "computed_outside_torch",
        wrong(custom(kept(variable="f", outside=True), kept("e", outside=True))),
        "from outside torch (f, ctx.e) and have no",
    ),
    (
        "intermediate_saved",
        wrong(custom(kept(variable="e"), kept())),
        "itself (e, saved_tensors[0]). Autograd",
    ),
    (
        "intermediate_saved",
        wrong(custom(kept())),
        "it made itself (saved_tensors[0]). Autograd does",
    ),
    (
        "intermediate_saved",
        wrong(custom(kept(repeats=Kind.OUTPUT))),
        "save the very tensor that you return",
    ),
    (
        "intermediate_saved",
        wrong(custom(kept(repeats=Kind.OUTPUT), kept(marked=True))),
        "It is returned, but marked non-differentiable",
    ),
    ("intermediate_saved", wrong(custom(kept(marked=True))), "leave mark_non_differentiable out"),
    ("intermediate_on_ctx", wrong(custom(number)), "ctx.r. No graph leads on from what is not a"),
    ("intermediate_on_ctx", wrong(custom(number, e)), "ctx.r: No graph leads on from what is"),
    ("intermediate_on_ctx", wrong(custom(e), custom(kept("m", marked=True))), "ctx.m: It is ret"),
    # How it is used is not known.
    ("intermediate_on_ctx", wrong(custom(kept("e", used=None))), "ctx.e"),
    (
        "intermediate_on_ctx",
        wrong(custom(kept("a", repeats=Kind.INPUT, inner=True), kept("y", repeats=Kind.OUTPUT))),
        "ctx.a, ctx.y. A graph that begins at a detached input ends there. Keep the inputs",
    ),
    ("grad_out_path_cut", wrong(sound(by_grad_out=WRONG, got=0.5)), "wrongly by grad_out"),
    ("grad_out_path_cut", wrong(sound(by_grad_out=WRONG)), "with grad_out itself, in torch where"),
    (
        "grad_out_path_cut",
        wrong(cutting(by_grad_out=WRONG)),
        "itself and with x, in torch",
    ),
    (
        "untracked_backward",
        wrong(cutting(untracked_calls=(Step("item", ""), Step("numpy", "b")))),
        "computes with x where autograd cannot follow (by one or more of .item(); NumPy in b).",
    ),
    ("untracked_backward", wrong(cutting(inner=("G",))), "with x where"),
    ("backward_not_linear", habit(not_linear="the same result"), "ignores grad_out"),
    ("in_place_without_mark_dirty", wrong(custom(kept(edited=True))), "ctx.mark_dirty(x)"),
    (
        "no_derivative_formula",
        wrong(warnings=("an autograd kernel was not registered",)),
        "register_autograd",
    ),
    ("numpy_in_backward", failing("Can't call numpy() on a Tensor"), "Do not follow the advice"),
    (
        "numpy_in_backward",
        wrong(custom(refused="Can't call numpy() on a Tensor")),
        "to NumPy, which has no graph. Do",
    ),
    ("third_order_not_tracked", seen(measured(**at_third)), "an operation of torch"),
    (
        "third_order_not_tracked",
        seen(measured(**at_third), functions=(custom(),)),
        "Diagnose the Function that backward",
    ),
    (
        "third_order_not_tracked",
        seen(measured(third=rows(RAISES)), functions=(sound(inner=("G", "H")), sound())),
        "Diagnose G, H by itself.",
    ),
    ("gradient_of_another_kind", failing("returned an invalid gradient at index 0"), "the shape"),
    ("gradient_can_be_none", failing("unsupported operand: 'NoneType' and"), "meets a None"),
    ("gradient_can_be_none", failing("NoneType object has no"), "meets a None"),
    (
        "raises_in",
        seen(
            measured(
                second={
                    Setting.ALONE: Row(RAISES, raised_in="f, line 1"),
                    Setting.BOTH: Row(RAISES, raised_in="g, line 2"),
                    Setting.AFTER: Row(RAISES, raised_in="f, line 1"),
                }
            )
        ),
        "comes from f, line 1, g, line 2.",
    ),
    (
        "cause_unknown",
        failing("something else"),
        "halves of fn by themselves to find the operation that raises",
    ),
    *(
        ("cause_unknown", wrong(*functions, alone=alone), words)
        for functions, alone, words in (
            ((), False, "no custom Function in fn is to blame"),
            ((sound(),), False, "no custom Function in fn is to blame"),
            ((sound(),), True, "the cause is not known"),
            ((custom(),), False, "the cause is not known"),
            ((follows,), False, "Autograd follows x through backward, and computes"),
        )
    ),
    *(
        ("no_derivative_formula", failing(f"derivative for {name} is not implemented"), words)
        for name, words in (
            ("aten::hardsigmoid_backward", "knows. Register one"),
            ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "SDPBackend.MATH"),
            ("aten::_scaled_dot_product_efficient_attention_backward", "SDPBackend.MATH"),
            ("'_cudnn_rnn_backward'", "torch.backends.cudnn.flags(enabled=False)"),
            ("'_cdist_backward'", ".square().sum(-1)"),
        )
    ),
    ("nan_in_first", seen(measured(NOT_FINITE)), "so neither is the second"),
    ("nan_in_second", seen(measured(grad_out_not_finite=True)), "are trained, it is not. Often"),
    (
        "nan_in_second",
        seen(measured(grad_out_not_finite=True), broken=Broken("F", "f, line 1")),
        "trained, it is not. The first operation whose result is not finite is F, in f, line 1, as",
    ),
    (
        "nan_in_second",
        seen(measured(second=one_not_finite), broken=Broken("F", "f, line 1")),
        "not finite is F, in f, line 1, as",
    ),
    (
        "nan_in_first",
        seen(measured(NOT_FINITE), broken=Broken("F", "")),
        "not finite is F, as that of",
    ),
    ("noncontiguous_input", habit(input_layout="a wrong number"), "look for strides"),
    ("noncontiguous_input", habit(input_layout="no"), "x: no. fn does something else"),
    (
        "grad_out_layout",
        habit(grad_out_layout="no view."),
        ".t() after fn): no view. Begin backward",
    ),
    ("backward_works_once", habit(only_once="gone."), "raises: gone. Leave what forward kept"),
    (
        "backward_works_once",
        seen(functions=(custom(kept("a", inner=True)),), habits=Habits(only_once="gone")),
        "raises: gone. Keep the inputs by save_for_backward, and run forward again",
    ),
    (
        "result_of_meant_gradient",
        wrong(custom(own_result=("y", "z"))),
        "its own result (y, z), which autograd differentiates by the gradient that you mean",
    ),
    (
        "memory_leak",
        seen(functions=(sound(kept("y", circular=True), e),), lifetime=Lifetime.FOREVER),
        "ctx.y keeps its own graph alive",
    ),
    (
        "elements_not_checked",
        seen(
            measured(
                second={
                    Setting.ALONE: Row(RIGHT, unchecked=1, elements=9),
                    Setting.AFTER: Row(RIGHT, unchecked=2, elements=9),
                    Setting.BOTH: Row(WRONG, unchecked=3, elements=9),
                }
            )
        ),
        "2 of 9 elements were not checked",
    ),
    ("edits_what_it_holds", seen(edited=tuple("abcde")), "changes a, b, c, d, .... That"),
    ("other_leaves", seen(unchecked=tuple("abcde")), "inputs: a, b, c, d, .... Derivatives"),
]

SILENT = [  # code, evidence that lacks something, or holds what explains it already
    ("returns_none", habit(no_gradient="b")),
    ("returns_none", seen(measured(WRONG))),
    ("grad_out_layout", habit(grad_out_layout="so", not_linear="so")),
    ("nan_in_second", seen(measured(NOT_FINITE, NOT_FINITE))),
    ("reference_cycle", seen(lifetime=Lifetime.FOREVER)),
    ("memory_leak", seen(lifetime=Lifetime.CYCLE)),
    ("elements_not_checked", seen(measured(second=rows(WRONG, unchecked=3, elements=9)))),
    ("sign_of_grad_out", seen(measured(situation=Situation("frozen")))),
    ("input_frozen", seen(measured(situation=Situation("negative")))),
    ("backward_works_once", habit(only_once="gone", mutates_saved=True)),
    *(
        ("first_derivative_differs", seen(measured(WRONG), habits=Habits(**{name: "so"})))
        for name in ("no_gradient", "mutates", "mutates_saved", "not_linear", "not_repeatable")
    ),
    ("inexact_first_derivative", seen(measured(relative=1e-3, **FLOAT32))),
    ("first_derivative_differs", seen(measured(WRONG, situation=Situation("linked")))),
    ("input_copy_saved", wrong(custom(kept("c", repeats=Kind.INPUT)))),
    ("input_copy_saved", wrong(custom(kept()))),
    ("intermediate_saved", wrong(custom(kept()), habits=Habits(edits_input=True))),
    ("intermediate_saved", wrong(custom(kept(outside=True)))),
    ("intermediate_on_ctx", wrong(custom(kept("e", outside=True)))),
    ("computed_outside_torch", wrong(custom(kept(), kept("e")))),
    ("argument_without_graph", wrong(custom(kept()))),
    ("intermediate_saved", wrong(custom(kept(repeats=Kind.INPUT), e))),
    ("intermediate_on_ctx", wrong(custom(kept()))),
    # Backward does not use it, or is right by itself, or writes it.
    ("intermediate_on_ctx", wrong(custom(kept("e", used=False)))),
    ("intermediate_on_ctx", wrong(sound(e))),
    ("intermediate_on_ctx", wrong(custom(e), habits=Habits(changes_ctx=("e",)))),
    ("state_outside_ctx", wrong(custom())),
    ("differences_disagree", seen(measured(second=UNCLEAR), raises_beside="ValueError")),
    ("differences_disagree", seen(measured(second=UNCLEAR, drowned=True))),
    ("state_outside_ctx", wrong(custom(hidden=True), habits=Habits(not_repeatable="so"))),
    ("second_function_gradient", wrong(second_function())),
    ("grad_out_path_cut", wrong(sound())),
    (
        "grad_out_path_cut",  # the second Function is to blame
        wrong(replace(second_function("g"), checked=sound(by_grad_out=WRONG).checked)),
    ),
    *(
        ("grad_out_path_cut", wrong(sound(by_grad_out=WRONG), habits=Habits(**{name: "so"})))
        for name in ("not_repeatable", "not_linear")
    ),
    *(
        (code, seen(measured(second=WRONG, changed_by_create_graph=True), functions=(function,)))
        for code, function in (
            ("grad_out_path_cut", sound(by_grad_out=WRONG)),
            ("untracked_backward", cutting()),
        )
    ),
    ("untracked_backward", wrong(cutting(), habits=Habits(not_repeatable="so"))),
    ("untracked_backward", wrong(custom(e))),
    ("untracked_backward", wrong(follows)),
    ("cause_unknown", wrong(custom(own_result=("y",)))),
    ("untracked_backward", wrong(replace(second_function("g"), cut=("x",)))),
    ("untracked_backward", wrong(cutting(first=WRONG), sound())),  # which follows a convention
    *(
        ("untracked_backward", wrong(cutting(), habits=Habits(**{name: True})))
        for name in ("edits_input", "mutates", "mutates_saved")
    ),
    ("gradients_by_convention", wrong(sound(first=WRONG))),
    ("path_counted_twice", wrong(custom(**twice), second=only_after, habits=ONCE_MORE)),
    ("path_counted_twice", wrong(sound(), second=only_after)),
    ("path_counted_twice", wrong(custom(**twice))),  # wrong without a graph after it, too
    ("path_counted_twice", wrong(custom(**twice), second=rows(RAISES))),
    # Something else is to blame.
    ("path_counted_twice", wrong(custom(tied=WRONG), second=only_after)),
    ("path_counted_twice", wrong(custom(**twice), extra(by_input=RIGHT), second=only_after)),
    ("in_place_without_mark_dirty", wrong(custom(kept()))),
    ("third_order_not_tracked", seen(measured(second=one_bad, **at_third))),
    *(
        ("saved_tensor_edited", failing("modified by an inplace operation", habits=habits))
        for habits in (Habits(mutates=True), Habits(mutates_saved=True))
    ),
    ("gradient_can_be_none", failing("'NoneType'", habits=Habits(only_once="so"))),
    (
        "view_in_backward",
        failing("view size is not compatible", habits=Habits(grad_out_layout="s")),
    ),
    ("compiled_region", seen(compiled=Compiled((REGION,), rows()))),
    ("leaf_edited", failing("a leaf Variable that requires grad", habits=Habits(mutates=True))),
    ("graph_freed", failing("backward through the graph a second time")),
    (
        "graph_freed",
        failing(
            "backward through the graph a second time",
            functions=(sound(),),
            habits=Habits(only_once="it raises"),
        ),
    ),
    ("raises_in", failing("something else")),
    ("cause_unknown", seen(measured(second=rows(RAISES, raised_in="f, line 1")))),
]


def said(evidence):
    return {finding.code: finding.message for finding in concluded(evidence)[1]}


@pytest.mark.parametrize("code, evidence, words", SPEAKS, ids=[code for code, *_ in SPEAKS])
def test_what_a_finding_says(code, evidence, words):
    assert words in said(evidence)[code]


@pytest.mark.parametrize("code, evidence", SILENT, ids=[code for code, _ in SILENT])
def test_when_a_finding_is_silent(code, evidence):
    assert code not in said(evidence)


@pytest.mark.parametrize(
    "evidence, codes",
    [
        (
            failing("modified by an inplace operation", functions=(custom(kept()),)),
            ["saved_tensor_edited", "intermediate_saved"],
        ),
        (
            seen(
                measured(
                    second={**rows(WRONG), Setting.BOTH: Row(RAISES, text="functions with out=")}
                ),
                functions=(custom(kept()),),
            ),
            ["intermediate_saved", "out_argument"],
        ),
        (
            wrong(custom(kept()), habits=Habits(only_once="gone")),
            ["intermediate_saved", "backward_works_once"],
        ),
        (
            wrong(custom(kept()), second=one_not_finite),
            ["nan_in_second", "intermediate_saved"],
        ),
        (
            wrong(custom(kept()), second={**rows(WRONG), Setting.BOTH: Row(NOT_FINITE)}),
            ["intermediate_saved"],
        ),
    ],
)
def test_causes_of_the_verdict_come_first(evidence, codes):
    _, findings = concluded(evidence)
    assert [f.code for f in findings if f.cause] == codes


def test_nothing_is_said_where_nothing_was_seen():
    assert said(seen()) == {}
