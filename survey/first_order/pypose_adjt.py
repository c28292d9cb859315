"""PyPose: the transposed adjoint of a pose, X.AdjT(a)

Call: pypose.SE3.AdjT(a)
Function: pypose:SE3_AdjTXa
Where: where the pose has a translation, by the pose and by a; rotations (SO3 too) are right
Why: forward applies Ad(X)⁻¹, backward Ad(X); its transpose Ad(X)⁻ᵀ is Ad(X) for rotations alone
"""

import pypose
import torch

x = torch.tensor(0.5, requires_grad=True)
W = torch.arange(6.0)
X = pypose.se3(torch.arange(1.0, 7.0) / 5).Exp()


def f():
    return X.AdjT(pypose.se3(x * W)).tensor()[0]
