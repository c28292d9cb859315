"""RoMa: the orthogonal matrix that is nearest to another

Call: roma.procrustes(M)
Function: roma:_ProcrustesManualDerivatives
Where: method "svd", the default; for rotations in 3 x 3 (force_rotation=True) the default is right
Cost: where a gradient is to be differentiated, the singular value decomposition is made once more
Instead: `roma.procrustes_naive(M)`
"""

import roma
import torch

from survey.by_hand import second

x = torch.tensor(0.2, requires_grad=True)
M, W = torch.diag(torch.tensor([1.0, 2.0, 3.0])), torch.arange(9.0).reshape(3, 3)


def f(nearest=roma.procrustes):
    return (nearest(M + x * W) * W).sum()


# Instead

instead = second(lambda: f(roma.procrustes_naive), x)
