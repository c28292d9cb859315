"""Right answers to the exercises, each written in another way than the solution."""

import functools

import numpy as np
import torch
from scipy.special import dawsn
from torch.autograd import Function

from lessons_src.untracked_backward import in_numpy

RIGHT = []


def right(exercise):
    """Decorator for a function that makes an answer: adds (exercise, how it is written, answer)."""

    def add(make):
        RIGHT.append((exercise, make.__name__, make()))
        return make

    return add


@right("reciprocal")
def reciprocal_out_saved():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.reciprocal(x)
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return -g * out * out

    return F.apply


@right("reciprocal")
def reciprocal_materialize():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            if g is None:
                return None
            (x,) = ctx.saved_tensors
            return -g / (x * x)

    return F.apply


@right("reciprocal")
def reciprocal_non_static():
    class F(Function):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.pow(-1)

        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return -g * x.pow(-2)

    return F.apply


@right("reciprocal")
def reciprocal_vmap():
    class F(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return 1.0 / x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g.neg().div(x.square())

    return F.apply


@right("reciprocal")
def reciprocal_nested_grad():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.view_as(x).requires_grad_()
                z = 1 / y
            return torch.autograd.grad(z, y, g, create_graph=torch.is_grad_enabled())[0]

    return F.apply


@right("reciprocal")
def reciprocal_needs_input_grad():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if not ctx.needs_input_grad[0]:
                return None
            return -g / x**2

    return F.apply


@right("reciprocal")
def reciprocal_second_fn():
    class B(Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return -g / x**2

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            return -h / x**2, 2 * h * g / x**3

    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return B.apply(g, x)

    return F.apply


@right("reciprocal")
def reciprocal_mask_nondiff():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            mask = x > 0
            ctx.mark_non_differentiable(mask)
            out = 1 / x
            ctx.save_for_backward(out, mask)
            return out, mask

        @staticmethod
        def backward(ctx, g, gm):
            out, mask = ctx.saved_tensors
            return -g * out**2

    def answer(x):
        return F.apply(x)[0]

    return answer


@right("reciprocal")
def reciprocal_float_mask_saved():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            sign = torch.sign(x)
            ctx.save_for_backward(x, sign)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            x, sign = ctx.saved_tensors
            return -g * sign * sign / x**2

    return F.apply


@right("reciprocal")
def reciprocal_callable_obj():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return -g / x**2

    class C:
        def __call__(self, x):
            return F.apply(x)

    return C()


@right("reciprocal")
def reciprocal_module():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return -g / x**2

    class M(torch.nn.Module):
        def forward(self, x):
            return F.apply(x)

    return M()


@right("reciprocal")
def reciprocal_partial():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return -g / x**2

    return functools.partial(F.apply)


@right("reciprocal")
def reciprocal_tuple_return():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return (-g / x**2,)

    return F.apply


@right("reciprocal")
def reciprocal_save_twice_both():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            out = 1 / x
            ctx.save_for_backward(x, out)
            return out

        @staticmethod
        def backward(ctx, g):
            x, out = ctx.saved_tensors
            return -g * out / x

    return F.apply


@right("reciprocal")
def reciprocal_assert_on_detached():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            assert x.detach().isfinite().all()
            return -g / x**2

    return F.apply


@right("reciprocal")
def reciprocal_shape_item():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.n = x.numel()
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            assert ctx.n == x.numel()
            return -g / x**2

    return F.apply


@right("power")
def power_tensor_n_saved():
    class F(Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.save_for_backward(x, torch.tensor(float(n), dtype=x.dtype))
            return x**n

        @staticmethod
        def backward(ctx, g):
            x, n = ctx.saved_tensors
            return g * n * x ** (n - 1), None

    return F.apply


@right("power")
def power_loop():
    class F(Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.save_for_backward(x)
            ctx.n = n
            out = torch.ones_like(x)
            for _ in range(n):
                out = out * x
            return out

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            lower = torch.ones_like(x)
            for _ in range(ctx.n - 1):
                lower = lower * x
            return g * ctx.n * lower, None

    return F.apply


@right("power")
def power_trailing_none():
    class F(Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.save_for_backward(x)
            ctx.exponent = n
            return torch.pow(x, n)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return ctx.exponent * g * torch.pow(x, ctx.exponent - 1), None, None

    return F.apply


@right("power")
def power_recursive_apply():
    class F(Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.save_for_backward(x)
            ctx.n = n
            return x**n

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if ctx.n == 0:
                return torch.zeros_like(x) * g, None
            return g * ctx.n * F.apply(x, ctx.n - 1), None

    return F.apply


@right("product")
def product_guards():
    class F(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            ga = gb = None
            if ctx.needs_input_grad[0]:
                ga = g * b
            if ctx.needs_input_grad[1]:
                gb = g * a
            return ga, gb

    return F.apply


@right("product")
def product_save_only_needed():
    class F(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a if b.requires_grad else None, b if a.requires_grad else None)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return (None if b is None else g * b), (None if a is None else g * a)

    return F.apply


@right("product")
def product_list_unpack():
    class F(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return torch.mul(a, b)

        @staticmethod
        def backward(ctx, g):
            saved = ctx.saved_tensors
            return g * saved[1], g * saved[0]

    return F.apply


@right("sigmoid")
def sigmoid_via_tanh():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            out = 0.5 * (1 + torch.tanh(x / 2))
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return g * (out - out * out)

    return F.apply


@right("sigmoid")
def sigmoid_torch_sigmoid_x_saved():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sigmoid(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = x.sigmoid()
            return s * (1 - s) * g

    return F.apply


@right("sigmoid")
def sigmoid_stable_where():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            z = torch.exp(-x.abs())
            out = torch.where(x >= 0, 1 / (1 + z), z / (1 + z))
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return g * out * (1 - out)

    return F.apply


@right("sigmoid")
def sigmoid_extra_exp():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            e = torch.exp(-x)
            ctx.save_for_backward(e)
            return 1 / (1 + e), e

        @staticmethod
        def backward(ctx, g, ge):
            (e,) = ctx.saved_tensors
            return g * e / (1 + e) ** 2 - ge * e

    return lambda x: F.apply(x)[0]


@right("softplus")
def softplus_stable():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs()))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * torch.sigmoid(x)

    return F.apply


@right("softplus")
def softplus_f_softplus():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.nn.functional.softplus(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (1 + torch.exp(-x))

    return F.apply


@right("softplus")
def softplus_logaddexp():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.logaddexp(x, torch.zeros_like(x))
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return g * -torch.expm1(-out)

    return F.apply


@right("softplus")
def softplus_where_20():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x > 20, x, torch.log1p(torch.exp(x)))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * torch.sigmoid(x)

    return F.apply


@right("tanh_exp")
def tanh_exp_e2x():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            e = torch.exp(2 * x)
            ctx.save_for_backward(e)
            return (e - 1) / (e + 1), e

        @staticmethod
        def backward(ctx, g, ge):
            (e,) = ctx.saved_tensors
            return g * 4 * e / (e + 1) ** 2 + ge * 2 * e

    def answer(x):
        y, e = F.apply(x)
        return y

    return answer


@right("tanh_exp")
def tanh_exp_quotient():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            p, m = torch.exp(x), torch.exp(-x)
            ctx.save_for_backward(p, m)
            return (p - m) / (p + m), p, m

        @staticmethod
        def backward(ctx, g, gp, gm):
            p, m = ctx.saved_tensors
            return g * ((p + m) ** 2 - (p - m) ** 2) / (p + m) ** 2 + gp * p - gm * m

    return lambda x: F.apply(x)[0]


@right("tanh_exp")
def tanh_exp_out_saved():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            p, m = torch.exp(x), torch.exp(-x)
            out = (p - m) / (p + m)
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return g * (1 - out**2)

    return F.apply


@right("tanh_exp")
def tanh_exp_materialize_false():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            p, m = torch.exp(x), torch.exp(-x)
            ctx.save_for_backward(p, m)
            return (p - m) / (p + m), p, m

        @staticmethod
        def backward(ctx, g, gp, gm):
            p, m = ctx.saved_tensors
            r = 0
            if g is not None:
                r = r + g * 4 / (p + m) ** 2
            if gp is not None:
                r = r + gp * p
            if gm is not None:
                r = r - gm * m
            return r

    return lambda x: F.apply(x)[0]


@right("tanh_exp")
def tanh_exp_dict_wrapper():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            p, m = torch.exp(x), torch.exp(-x)
            ctx.save_for_backward(p, m)
            return p, m, (p - m) / (p + m)

        @staticmethod
        def backward(ctx, gp, gm, g):
            p, m = ctx.saved_tensors
            return g * 4 / (p + m) ** 2 + gp * p - gm * m

    return lambda x: F.apply(x)[2]


@right("normalise")
def normalise_x_saved():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x / x.norm()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            r = x.norm()
            y = x / r
            return (g - y * (g * y).sum()) / r

    return F.apply


@right("normalise")
def normalise_r2():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            r2 = (x * x).sum()
            ctx.save_for_backward(x, r2)
            return x / r2.sqrt(), r2

        @staticmethod
        def backward(ctx, g, gr):
            x, r2 = ctx.saved_tensors
            return g / r2.sqrt() - x * (g * x).sum() / r2**1.5 + 2 * x * gr

    return lambda x: F.apply(x)[0]


@right("normalise")
def normalise_inv():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            inv = x.square().sum().rsqrt()
            out = x * inv
            ctx.save_for_backward(out, inv)
            return out, inv

        @staticmethod
        def backward(ctx, g, gi):
            out, inv = ctx.saved_tensors
            return inv * (g - out * (g * out).sum()) - gi * inv**2 * out

    return lambda x: F.apply(x)[0]


@right("standardise")
def standardise_recompute():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x - x.mean()) / torch.sqrt(x.var(correction=0) + 1e-5)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = torch.sqrt(x.var(unbiased=False) + 1e-5)
            y = (x - x.mean()) / s
            return (g - g.mean() - y * (g * y).mean()) / s

    return F.apply


@right("standardise")
def standardise_enable_grad():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x - x.mean()) / torch.sqrt(x.var(correction=0) + 1e-5)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                z = x.view_as(x)
                y = (z - z.mean()) / torch.sqrt(((z - z.mean()) ** 2).mean() + 1e-5)
            return torch.autograd.grad(y, z, g, create_graph=True)[0]

    return F.apply


@right("standardise")
def standardise_col0_comment():
    class Standardise(Function):
        """doc
        at column 0
        """

        @staticmethod
        def forward(ctx, x):
            # a comment at column 0
            sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
            """
old code
            ctx.sqrt_var = 3
    """
            out = (x - x.mean()) / sqrt_var
            ctx.save_for_backward(x, out)
            return out

        @staticmethod
        def backward(ctx, grad_out):
            x, out = ctx.saved_tensors
            #        along_out = 3
            sqrt_var = torch.sqrt(x.var(correction=0) + 1e-5)
            along_out = out * (grad_out * out).mean()
            return (grad_out - grad_out.mean() - along_out) / sqrt_var

    return Standardise.apply


@right("standardise")
def standardise_extra_rstd():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            r = (x.var(correction=0) + 1e-5).rsqrt()
            out = (x - x.mean()) * r
            ctx.save_for_backward(out, r)
            return out, r

        @staticmethod
        def backward(ctx, g, gr):
            out, r = ctx.saved_tensors
            d = (g - g.mean() - out * (g * out).mean()) * r
            return d - gr * r * r * out / out.numel()

    return lambda x: F.apply(x)[0]


@right("artanh")
def artanh_atanh():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.atanh(x.clamp(-1 + 1e-6, 1 - 1e-6))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            c = x.clamp(-1 + 1e-6, 1 - 1e-6)
            return g / ((1 - c) * (1 + c))

    return F.apply


@right("artanh")
def artanh_clamp_outside():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 0.5 * (torch.log1p(x) - torch.log1p(-x))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (1 - x * x)

    return lambda x: F.apply(torch.clamp(x, -1 + 1e-6, 1 - 1e-6))


@right("artanh")
def artanh_zero_beyond():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            c = x.clamp(-1 + 1e-6, 1 - 1e-6)
            return torch.atanh(c)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            c = x.clamp(-1 + 1e-6, 1 - 1e-6)
            inside = (x.abs() < 1 - 1e-6).to(g.dtype)
            return g * inside / (1 - c**2)

    return F.apply


@right("artanh")
def artanh_return_both():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            c = x.clamp(-1 + 1e-6, 1 - 1e-6)
            ctx.save_for_backward(c)
            return torch.atanh(c), c

        @staticmethod
        def backward(ctx, g, gc):
            (c,) = ctx.saved_tensors
            return g / (1 - c**2) + gc

    return lambda x: F.apply(x)[0]


@right("swish")
def swish_no_contiguous():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return g * (s + x * s * (1 - s))

    return F.apply


@right("swish")
def swish_silu():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.nn.functional.silu(x.contiguous())

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = x.contiguous().sigmoid()
            return g.contiguous() * s * (1 + x * (1 - s))

    return F.apply


@right("swish")
def swish_contig_in_backward():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            x = x.contiguous()
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            x = x.contiguous()
            s = torch.sigmoid(x)
            return g * s * (1 + x * (1 - s))

    return F.apply


@right("swish")
def swish_contig_outside():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return g * s * (1 + x * (1 - s))

    return lambda x: F.apply(x.contiguous())


@right("learned_power")
def learned_power_log():
    class F(Function):
        @staticmethod
        def forward(ctx, x, alpha):
            out = torch.exp(alpha * torch.log(x))
            ctx.save_for_backward(x, alpha, out)
            return out

        @staticmethod
        def backward(ctx, g):
            x, alpha, out = ctx.saved_tensors
            return g * alpha * out / x, (g * out * x.log()).sum()

    return F.apply


@right("learned_power")
def learned_power_expand_in_backward():
    class F(Function):
        @staticmethod
        def forward(ctx, x, alpha):
            ctx.save_for_backward(x, alpha)
            return x.pow(alpha)

        @staticmethod
        def backward(ctx, g):
            x, alpha = ctx.saved_tensors
            a = alpha.expand_as(x)
            return g * a * x ** (a - 1), (g * x**a * torch.log(x)).sum()

    return F.apply


@right("learned_power")
def learned_power_no_sum():
    class F(Function):
        @staticmethod
        def forward(ctx, x, alpha):
            ctx.save_for_backward(x, alpha)
            return x.pow(alpha)

        @staticmethod
        def backward(ctx, g):
            x, alpha = ctx.saved_tensors
            return g * alpha * x ** (alpha - 1), g * x**alpha * torch.log(x)

    return F.apply


@right("dawson")
def dawson_out_in_torch():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.as_tensor(dawsn(x.detach().numpy()))
            ctx.save_for_backward(x, out)
            return out

        @staticmethod
        def backward(ctx, g):
            x, out = ctx.saved_tensors
            return g * (1 - 2 * x * out)

    return F.apply


@right("dawson")
def dawson_g_in_numpy():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return in_numpy(dawsn, x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return in_numpy(lambda g, x: g * (1 - 2 * x * dawsn(x)), g, x)

    return F.apply


@right("dawson_twice")
def dawson_twice_variant():
    def d1(x):
        return 1 - 2 * x * dawsn(x)

    def d2(x):
        return -2 * dawsn(x) - 2 * x * d1(x)

    class B(Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return g * in_numpy(d1, x)

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            return h * in_numpy(d1, x), g * h * in_numpy(d2, x)

    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return in_numpy(dawsn, x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return B.apply(g, x)

    return F.apply


@right("dawson_twice")
def dawson_twice_all_numpy():
    def d1(x):
        return 1 - 2 * x * dawsn(x)

    def d2(x):
        return -2 * dawsn(x) - 2 * x * d1(x)

    class B(Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return in_numpy(lambda g, x: g * d1(x), g, x)

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            return in_numpy(lambda h, x: h * d1(x), h, x), in_numpy(
                lambda h, g, x: h * g * d2(x), h, g, x
            )

    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return in_numpy(dawsn, x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return B.apply(g, x)

    return F.apply


@right("dawson_twice")
def dawson_twice_args_swapped():
    def d1(x):
        return 1 - 2 * x * dawsn(x)

    def d2(x):
        return -2 * dawsn(x) - 2 * x * d1(x)

    class B(Function):
        @staticmethod
        def forward(ctx, x, g):
            ctx.save_for_backward(g, x)
            return g * in_numpy(d1, x)

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            return h * g * in_numpy(d2, x), h * in_numpy(d1, x)

    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return in_numpy(dawsn, x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return B.apply(x, g)

    return F.apply


@right("dawson_twice")
def dawson_twice_one_d_per_function():
    def d1(x):
        return 1 - 2 * x * dawsn(x)

    def d2(x):
        return -2 * dawsn(x) - 2 * x * d1(x)

    class D1(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return in_numpy(d1, x)

        @staticmethod
        def backward(ctx, h):
            (x,) = ctx.saved_tensors
            return h * in_numpy(d2, x)

    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return in_numpy(dawsn, x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * D1.apply(x)

    return F.apply


@right("dawson_twice")
def dawson_twice_guards():
    def d1(x):
        return 1 - 2 * x * dawsn(x)

    def d2(x):
        return -2 * dawsn(x) - 2 * x * d1(x)

    class B(Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return g * in_numpy(d1, x)

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            a = b = None
            if ctx.needs_input_grad[0]:
                a = h * in_numpy(d1, x)
            if ctx.needs_input_grad[1]:
                b = h * g * in_numpy(d2, x)
            return a, b

    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return in_numpy(dawsn, x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return B.apply(g, x)

    return F.apply


def e_to_the(b):
    return in_numpy(np.exp, b)


@right("growth")
def growth_all_numpy():
    def first(g, a, b):
        return np.stack([g * np.exp(b), g * a * np.exp(b)])

    def second(p, q, g, a, b):
        return np.stack([(p + q * a) * np.exp(b), q * g * np.exp(b), (p + q * a) * g * np.exp(b)])

    class B(Function):
        @staticmethod
        def forward(ctx, g, a, b):
            ctx.save_for_backward(g, a, b)
            return tuple(in_numpy(first, g, a, b))

        @staticmethod
        def backward(ctx, p, q):
            return tuple(in_numpy(second, p, q, *ctx.saved_tensors))

    class F(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return in_numpy(lambda a, b: a * np.exp(b), a, b)

        @staticmethod
        def backward(ctx, g):
            return B.apply(g, *ctx.saved_tensors)

    return F.apply


@right("growth")
def growth_gradients_in_the_other_order():
    class B(Function):
        @staticmethod
        def forward(ctx, b, a, g):
            ctx.save_for_backward(g, a, b)
            return g * a * e_to_the(b), g * e_to_the(b)

        @staticmethod
        def backward(ctx, h_b, h_a):
            g, a, b = ctx.saved_tensors
            along = (h_a + h_b * a) * e_to_the(b)
            return along * g, h_b * g * e_to_the(b), along

    class F(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * e_to_the(b)

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            grad_b, grad_a = B.apply(b, a, g)
            return grad_a, grad_b

    return F.apply


@right("growth")
def growth_only_what_is_needed():
    class B(Function):
        @staticmethod
        def forward(ctx, g, a, b):
            ctx.save_for_backward(g, a, b)
            return g * e_to_the(b), g * a * e_to_the(b)

        @staticmethod
        def backward(ctx, h_a, h_b):
            g, a, b = ctx.saved_tensors
            needs_g, needs_a, needs_b = ctx.needs_input_grad
            along = (h_a + h_b * a) * e_to_the(b)
            return (
                along if needs_g else None,
                h_b * g * e_to_the(b) if needs_a else None,
                along * g if needs_b else None,
            )

    class F(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * e_to_the(b)

        @staticmethod
        def backward(ctx, g):
            return B.apply(g, *ctx.saved_tensors)

    return F.apply


@right("growth")
def growth_by_a_function_for_the_exponential():
    class Exp(Function):
        @staticmethod
        def forward(ctx, b):
            out = e_to_the(b)
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return g * out

    class F(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * e_to_the(b)

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * Exp.apply(b), g * a * Exp.apply(b)

    return F.apply


@right("growth")
def growth_with_setup_context():
    class B(Function):
        @staticmethod
        def forward(g, a, b):
            return g * e_to_the(b), g * a * e_to_the(b)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, h_a, h_b):
            g, a, b = ctx.saved_tensors
            exp = e_to_the(b)
            return h_a * exp + h_b * a * exp, h_b * g * exp, h_a * g * exp + h_b * g * a * exp

    class F(Function):
        @staticmethod
        def forward(a, b):
            return a * e_to_the(b)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            grad_a, grad_b = B.apply(g, a, b)
            return grad_a, grad_b

    return F.apply


@right("solve")
def solve_with_the_inverse_as_output():
    class Inverse(Function):
        @staticmethod
        def forward(ctx, A):
            out = in_numpy(np.linalg.inv, A)
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return -out.t() @ g @ out.t()

    return lambda A, b: Inverse.apply(A) @ b


@right("solve")
def solve_asks_what_is_needed():
    class F(Function):
        @staticmethod
        def forward(ctx, A, b):
            u = in_numpy(np.linalg.solve, A, b)
            ctx.save_for_backward(A, u)
            return u

        @staticmethod
        def backward(ctx, g):
            A, u = ctx.saved_tensors
            w = F.apply(A.T, g)
            return -w[:, None] * u if ctx.needs_input_grad[0] else None, w

    return F.apply


@right("solve")
def solve_with_the_result_computed_again():
    class F(Function):
        @staticmethod
        def forward(ctx, A, b):
            ctx.save_for_backward(A, b)
            return in_numpy(np.linalg.solve, A, b)

        @staticmethod
        def backward(ctx, g):
            A, b = ctx.saved_tensors
            w = F.apply(A.t(), g)
            return -torch.outer(w, F.apply(A, b)), w

    return F.apply


@right("library")
def library_all_in_backward():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.exp(-x * x / 2)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return -g * x * torch.exp(-x * x / 2)

    return F.apply


@right("library")
def library_minus_x_returned():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            minus_x = -x
            out = torch.exp(minus_x * x / 2)
            ctx.save_for_backward(minus_x, out)
            return out, minus_x

        @staticmethod
        def backward(ctx, g, g_minus_x):
            minus_x, out = ctx.saved_tensors
            return g * minus_x * out - g_minus_x

    return lambda x: F.apply(x)[0]


@right("library")
def library_minus_taken_before():
    class F(Function):
        @staticmethod
        def forward(ctx, x, minus_x):
            out = torch.exp(minus_x * x / 2)
            ctx.save_for_backward(minus_x, out)
            return out

        @staticmethod
        def backward(ctx, g):
            minus_x, out = ctx.saved_tensors
            return g * minus_x * out, None

    return lambda x: F.apply(x, -x)
