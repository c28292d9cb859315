"""One right answer to each exercise, as `solution` shows it.

The last object of an entry of `SOLUTIONS` is what `check` is called with; all of them are shown.
"""

import torch
from scipy.special import dawsn
from torch.autograd import Function

from lessons_src.untracked_backward import in_numpy


class Reciprocal(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 1 / x

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return -grad_out / x**2


class Product(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad_out):
        a, b = ctx.saved_tensors
        return grad_out * b, grad_out * a


class Power(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * ctx.n * x ** (ctx.n - 1), None


class Sigmoid(Function):
    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * out * (1 - out)


class Tanh(Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * (1 - out**2)


class Softplus(Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.log(1 + torch.exp(x))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        return grad_out * (1 - torch.exp(-out))


class TanhExp(Function):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return (expx - expnegx) / (expx + expnegx), expx, expnegx

    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * 4 / (expx + expnegx) ** 2
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


def tanh_exp(x):
    out, _expx, _expnegx = TanhExp.apply(x)
    return out


class LogCosh(Function):
    @staticmethod
    def forward(ctx, x):
        expx = torch.exp(x)
        expnegx = torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return torch.log((expx + expnegx) / 2), expx, expnegx

    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        grad_x = grad_out * (expx - expnegx) / (expx + expnegx)
        grad_x = grad_x + grad_expx * expx
        grad_x = grad_x - grad_expnegx * expnegx
        return grad_x


def logcosh(x):
    out, _expx, _expnegx = LogCosh.apply(x)
    return out


class Normalise(Function):
    @staticmethod
    def forward(ctx, x):
        norm = torch.sqrt((x**2).sum())
        out = x / norm
        ctx.save_for_backward(out, norm)
        return out, norm

    @staticmethod
    def backward(ctx, grad_out, grad_norm):
        out, norm = ctx.saved_tensors
        grad_x = (grad_out - out * (grad_out * out).sum()) / norm
        grad_x = grad_x + grad_norm * out
        return grad_x


def normalise(x):
    out, _norm = Normalise.apply(x)
    return out


class Standardise(Function):
    @staticmethod
    def forward(ctx, x):
        sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        out = (x - x.mean()) / sqrt_var
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, out = ctx.saved_tensors
        sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
        along_out = out * (grad_out * out).mean()
        return (grad_out - grad_out.mean() - along_out) / sqrt_var


class Artanh(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        return (torch.log(1 + x) - torch.log(1 - x)) / 2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        return grad_out / (1 - x**2)


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_out * s * (1 + x * (1 - s))


class LearnedPower(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x, alpha)
        return x**alpha

    @staticmethod
    def backward(ctx, grad_out):
        x, alpha = ctx.saved_tensors
        grad_x = grad_out * alpha * x ** (alpha - 1)
        grad_alpha = grad_out * x**alpha * torch.log(x)
        return grad_x, grad_alpha.sum()


def dawson_first(x):
    return 1 - 2 * x * dawsn(x)


def dawson_second(x):
    return -2 * dawsn(x) - 2 * x * dawson_first(x)


class Dawson(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return in_numpy(dawsn, x)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * in_numpy(dawson_first, x)


class DawsonBackward(Function):
    @staticmethod
    def forward(ctx, grad_out, x):
        ctx.save_for_backward(grad_out, x)
        return grad_out * in_numpy(dawson_first, x)

    @staticmethod
    def backward(ctx, grad_grad_x):
        grad_out, x = ctx.saved_tensors
        return (
            grad_grad_x * in_numpy(dawson_first, x),
            grad_grad_x * grad_out * in_numpy(dawson_second, x),
        )


class DawsonTwice(Dawson):
    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return DawsonBackward.apply(grad_out, x)


SOLUTIONS = {
    "reciprocal": (Reciprocal,),
    "product": (Product,),
    "power": (Power,),
    "sigmoid": (Sigmoid,),
    "tanh": (Tanh,),
    "softplus": (Softplus,),
    "tanh_exp": (TanhExp, tanh_exp),
    "logcosh": (LogCosh, logcosh),
    "normalise": (Normalise, normalise),
    "standardise": (Standardise,),
    "artanh": (Artanh,),
    "swish": (Swish,),
    "learned_power": (LearnedPower,),
    "dawson": (dawson_first, Dawson),
    "dawson_twice": (dawson_second, DawsonBackward, DawsonTwice),
}
