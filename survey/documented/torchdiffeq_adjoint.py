"""torchdiffeq: an encoder before an ODE that is solved by the adjoint method

Call: torchdiffeq.odeint_adjoint(func, y0, t)
Function: torchdiffeq:OdeintAdjointMethod
Where: always; with nothing non-linear before y0, and no other term, autograd raises
Thread: https://github.com/rtqichen/torchdiffeq/issues/29
Instead: `torchdiffeq.odeint(func, y0, t)`
"""

import torch
import torchdiffeq

from survey.by_hand import second

x = torch.tensor(0.7, requires_grad=True)


class Sine(torch.nn.Module):
    def forward(self, t, y):
        return torch.sin(y)


def f(solve=torchdiffeq.odeint_adjoint):
    return solve(Sine(), 2 * torch.tanh(x), torch.tensor([0.0, 1.0]))[-1]


# Instead

instead = second(lambda: f(torchdiffeq.odeint), x)
