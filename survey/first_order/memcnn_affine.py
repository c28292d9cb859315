"""MemCNN: the affine coupling in its second implementation

Call: memcnn.AffineCoupling(net, implementation_fwd=1)
Function: memcnn:AffineBlockFunction2
Where: with implementation_fwd=1, which the package calls deprecated when it is used
Why: backward adds grad_out to the gradient by x2 without the factor that forward multiplied x2 by
Instead: the default `implementation_fwd=-1`
"""

import memcnn
import torch

from survey.by_hand import by_grad

x = torch.tensor(0.5, requires_grad=True)
torch.manual_seed(0)
net = torch.nn.Linear(2, 4)
points = torch.arange(4.0).reshape(1, 4) + 1


def f(way=1):
    coupling = memcnn.AffineCoupling(
        net, adapter=memcnn.AffineAdapterSigmoid, implementation_fwd=way
    )
    return coupling(x * points).sum()


# Instead

instead = by_grad(lambda: f(way=-1), x).item()
