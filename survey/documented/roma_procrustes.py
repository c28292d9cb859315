"""RoMa: the orthogonal matrix that is nearest to another

Call: roma.procrustes(M)
Function: roma:_ProcrustesManualDerivatives
Where: method "svd", the default for anything but rotations in 3 x 3
Instead: `roma.procrustes_naive(M)`, or `method="horn"` for rotations in 3 x 3
"""

import roma
import torch

from survey.by_hand import second

x = torch.tensor(0.3, requires_grad=True)
M, W = torch.diag(torch.tensor([1.0, 2.0, 3.0])), torch.arange(9.0).reshape(3, 3)


def f(nearest=roma.procrustes):
    return (nearest(M + x * W)[0] * W).sum()


# Instead

instead = second(lambda: f(roma.procrustes_naive), x)
