"""Whether a right answer practises what its exercise is for."""

import torch

from double_backward.graphs import walk

from .task import Task


def around_the_point(task: Task, answer) -> str:
    """One sentence where a right answer keeps no extra output and its exercise is about one."""
    if not task.extra:
        return ""
    fn = answer.apply if isinstance(answer, type) else answer
    with torch.inference_mode(False), torch.enable_grad():
        nodes = walk.walk(fn(*task.plain[0].fresh())).nodes
    kept = [each for node in nodes if node.custom for each in node.kept]
    if any(each.role == walk.OUTPUT and each.position for each in kept):
        return ""
    return (
        f"But it goes around the point of this exercise, which is to keep {task.extra}: save what "
        "backward needs, and return it as an extra output."
    )
