"""Each finding of `diagnose` points to a lesson: here, to one that says something about it."""

from pathlib import Path

import nbformat
import pytest

from double_backward.diagnosis.findings import ROWS

LESSONS = {
    int(path.name[0]): " ".join(
        cell.source + "".join(map(str, cell.get("outputs", [])))
        for cell in nbformat.read(path, as_version=4).cells
    )
    for path in (Path(__file__).parents[1] / "notebooks").glob("[0-9]_*.ipynb")
}
# The code of a finding -> what its lesson has to say, word for word.
WORDS = {
    "compiled_region": "force_eager",
    "mutates_grad_out": "grad_out is not yours",
    "mutates_saved": "In place",
    "backward_works_once": "backward",
    "backward_not_linear": "gradcheck",
    "backward_not_repeatable": "random draw",
    "state_between_calls": "on ctx",
    "leaf_without_gradient": "make it an input",
    "returns_none": "returns_none",
    "first_derivative_differs": "straight-through",
    "inexact_first_derivative": "gradcheck",
    "changed_by_create_graph": "create_graph",
    "once_differentiable": "once_differentiable",
    "extra_output_gradient_ignored": "extra_output_gradient_ignored",
    "extra_output_gradient_wrong": "extra gradients",
    "input_copy_saved": "input_copy_saved",
    "argument_without_graph": "input_copy_saved",
    "intermediate_saved": "intermediate_saved",
    "intermediate_on_ctx": "intermediate_on_ctx",
    "computed_outside_torch": "NumPy",
    "state_outside_ctx": "computed from an input",
    "second_function_gradient": "second_function_gradient",
    "grad_out_path_cut": "grad_out_path_cut",
    "untracked_backward": "untracked_backward",
    "untracked_forward": "detach",
    "float32_differs": "float32",
    "path_counted_twice": "path_counted_twice",
    "gradients_by_convention": "the first backward's formula",
    "in_place_without_mark_dirty": "in_place_without_mark_dirty",
    "no_derivative_formula": "no_derivative_formula",
    "numpy_in_backward": "numpy_in_backward",
    "inputs_of_one_another": "inputs_of_one_another",
    "sign_of_grad_out": "sign",
    "input_frozen": "frozen w",
    "third_order_not_tracked": "third_order_not_tracked",
    "saved_tensor_edited": "in place",
    "leaf_edited": "in place",
    "graph_freed": "create_graph",
    "checkpoint_refuses_grad": "checkpoint_refuses_grad",
    "endless_recursion": "endless_recursion",
    "number_of_gradients": "each argument of",
    "gradient_for_no_tensor": "each argument of",
    "gradient_of_another_kind": "each argument of",
    "gradient_can_be_none": "set_materialize_grads",
    "view_in_backward": "another layout",
    "no_backward": "backward",
    "out_argument": "out=",
    "raises_in": "raises",
    "cause_unknown": "draw",
    "nan_in_first": "A root of the output",
    "nan_in_second": "A root of the output",
    "noncontiguous_input": "noncontiguous_input",
    "grad_out_layout": "another layout",
    "input_on_ctx": "input_on_ctx",
    "output_on_ctx": "output_on_ctx",
    "reference_cycle": "reference_cycle",
    "memory_leak": "memory",
    "output_used_alone": "outputs",
    "raises_if_frozen": "needs_input_grad",
    "only_by_backward": "backward()",
    "elements_not_checked": "gradcheck",
    "differences_disagree": "gradcheck",
    "lost_in_rounding": "gradcheck",
    "raises_beside": "gradcheck",
    "computes_in_float32": "float32",
    "computes_in_16_bits": "bfloat16",
    "seed_fixed": "random draw",
    "edits_what_it_holds": "in place",
    "other_leaves": "make it an input",
    "stays_symmetric": "gradcheck",
    "another_point": "Test at several x",
    "meant": "ignore=",
}


def test_every_finding_has_its_word():
    assert set(WORDS) == set(ROWS)


@pytest.mark.parametrize("code", WORDS)
def test_the_lesson_of_a_finding_has_its_word(code):
    assert WORDS[code] in LESSONS[ROWS[code].lesson], ROWS[code].lesson
