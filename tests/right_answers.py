"""Right answers to the exercises, each written in another way than the solution: its changes."""

RIGHT = {
    "reciprocal, materialize": """
          def forward(ctx, x):
        +     ctx.set_materialize_grads(False)
          def backward(ctx, grad_out):
        +     if grad_out is None:
        +         return None
        - return -grad_out / x**2
        + return -grad_out / (x * x)
    """,
    "reciprocal, non static": """
        + class Reciprocal(Function):
        +     def forward(ctx, x):
        +         ctx.save_for_backward(x)
        +         return x.pow(-1)
        +
        +     def backward(ctx, grad_out):
        +         (x,) = ctx.saved_tensors
        +         return -grad_out * x.pow(-2)
    """,
    "reciprocal, nested grad": """
        - return -grad_out / x**2
        + with torch.enable_grad():
        +     y = x.view_as(x).requires_grad_()
        +     z = 1 / y
        + return torch.autograd.grad(z, y, grad_out, create_graph=torch.is_grad_enabled())[0]
    """,
    "reciprocal, needs input grad": """
          (x,) = ctx.saved_tensors
        + if not ctx.needs_input_grad[0]:
        +     return None
    """,
    "reciprocal, float mask saved": """
        - ctx.save_for_backward(x)
        + sign = torch.sign(x)
        + ctx.save_for_backward(x, sign)
        - (x,) = ctx.saved_tensors
        - return -grad_out / x**2
        + x, sign = ctx.saved_tensors
        + return -grad_out * sign * sign / x**2
    """,
    "reciprocal, tuple return": """
        - return -grad_out / x**2
        + return (-grad_out / x**2,)
    """,
    "reciprocal, assert on detached": """
          (x,) = ctx.saved_tensors
        + assert x.detach().isfinite().all()
    """,
    "power, tensor n saved": """
        - ctx.save_for_backward(x)
        - ctx.n = n
        + ctx.save_for_backward(x, torch.tensor(float(n), dtype=x.dtype))
        - (x,) = ctx.saved_tensors
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + x, n = ctx.saved_tensors
        + return grad_out * n * x ** (n - 1), None
    """,
    "power, trailing none": """
        - ctx.n = n
        - return x**n
        + ctx.exponent = n
        + return torch.pow(x, n)
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + return ctx.exponent * grad_out * torch.pow(x, ctx.exponent - 1), None, None
    """,
    "power, recursive apply": """
        - return grad_out * ctx.n * x ** (ctx.n - 1), None
        + if ctx.n == 0:
        +     return torch.zeros_like(x) * grad_out, None
        + return grad_out * ctx.n * Power.apply(x, ctx.n - 1), None
    """,
    "product, guards": """
        - return grad_out * b, grad_out * a
        + ga = gb = None
        + if ctx.needs_input_grad[0]:
        +     ga = grad_out * b
        + if ctx.needs_input_grad[1]:
        +     gb = grad_out * a
        + return ga, gb
    """,
    "product, save only needed": """
        - ctx.save_for_backward(a, b)
        + ctx.save_for_backward(a if b.requires_grad else None, b if a.requires_grad else None)
        - return grad_out * b, grad_out * a
        + return (None if b is None else grad_out * b), (None if a is None else grad_out * a)
    """,
    "sigmoid, stable where": """
        - out = 1 / (1 + torch.exp(-x))
        + z = torch.exp(-x.abs())
        + out = torch.where(x >= 0, 1 / (1 + z), z / (1 + z))
    """,
    "softplus, logaddexp": """
        - out = torch.log(1 + torch.exp(x))
        + out = torch.logaddexp(x, torch.zeros_like(x))
        - return grad_out * (1 - torch.exp(-out))
        + return grad_out * -torch.expm1(-out)
    """,
    "tanh_exp, out saved": """
        + class TanhExp(Function):
        +     @staticmethod
        +     def forward(ctx, x):
        +         p, m = torch.exp(x), torch.exp(-x)
        +         out = (p - m) / (p + m)
        +         ctx.save_for_backward(out)
        +         return out
        +
        +     @staticmethod
        +     def backward(ctx, grad_out):
        +         (out,) = ctx.saved_tensors
        +         return grad_out * (1 - out**2)
    """,
    "normalise, x saved": """
        + class Normalise(Function):
        +     @staticmethod
        +     def forward(ctx, x):
        +         ctx.save_for_backward(x)
        +         return x / x.norm()
        +
        +     @staticmethod
        +     def backward(ctx, grad_out):
        +         (x,) = ctx.saved_tensors
        +         r = x.norm()
        +         y = x / r
        +         return (grad_out - y * (grad_out * y).sum()) / r
    """,
    "standardise, enable grad": """
        + class Standardise(Function):
        +     @staticmethod
        +     def forward(ctx, x):
        +         ctx.save_for_backward(x)
        +         return (x - x.mean()) / torch.sqrt(x.var(correction=0) + 1e-5)
        +
        +     @staticmethod
        +     def backward(ctx, grad_out):
        +         (x,) = ctx.saved_tensors
        +         with torch.enable_grad():
        +             z = x.view_as(x)
        +             y = (z - z.mean()) / torch.sqrt(((z - z.mean()) ** 2).mean() + 1e-5)
        +         return torch.autograd.grad(y, z, grad_out, create_graph=True)[0]
    """,
    "artanh, atanh": """
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        - return (torch.log(1 + x) - torch.log(1 - x)) / 2
        + return torch.atanh(x.clamp(-1 + 1e-6, 1 - 1e-6))
        - x = x.clamp(-1 + 1e-6, 1 - 1e-6)
        - return grad_out / (1 - x**2)
        + c = x.clamp(-1 + 1e-6, 1 - 1e-6)
        + return grad_out / ((1 - c) * (1 + c))
    """,
    "artanh, clamp outside": """
        + class Artanh(Function):
        +     @staticmethod
        +     def forward(ctx, x):
        +         ctx.save_for_backward(x)
        +         return 0.5 * (torch.log1p(x) - torch.log1p(-x))
        +
        +     @staticmethod
        +     def backward(ctx, grad_out):
        +         (x,) = ctx.saved_tensors
        +         return grad_out / (1 - x * x)
        +
        +
        + def answer(x):
        +     return Artanh.apply(torch.clamp(x, -1 + 1e-6, 1 - 1e-6))
    """,
    "swish, silu": """
        - x = x.contiguous()
        - return x * torch.sigmoid(x)
        + return torch.nn.functional.silu(x.contiguous())
        - s = torch.sigmoid(x)
        - return grad_out * s * (1 + x * (1 - s))
        + s = x.contiguous().sigmoid()
        + return grad_out.contiguous() * s * (1 + x * (1 - s))
    """,
    "swish, contig in backward": """
          (x,) = ctx.saved_tensors
        + x = x.contiguous()
    """,
    "learned_power, expand in backward": """
        - return x**alpha
        + return x.pow(alpha)
        - grad_x = grad_out * alpha * x ** (alpha - 1)
        - grad_alpha = grad_out * x**alpha * torch.log(x)
        - return grad_x, grad_alpha.sum()
        + a = alpha.expand_as(x)
        + return grad_out * a * x ** (a - 1), (grad_out * x**a * torch.log(x)).sum()
    """,
    "learned_power, no sum": """
        - return x**alpha
        + return x.pow(alpha)
        - grad_x = grad_out * alpha * x ** (alpha - 1)
        - grad_alpha = grad_out * x**alpha * torch.log(x)
        - return grad_x, grad_alpha.sum()
        + return grad_out * alpha * x ** (alpha - 1), grad_out * x**alpha * torch.log(x)
    """,
    "dawson, out in torch": """
        + class Dawson(Function):
        +     @staticmethod
        +     def forward(ctx, x):
        +         out = torch.as_tensor(dawsn(x.detach().numpy()))
        +         ctx.save_for_backward(x, out)
        +         return out
        +
        +     @staticmethod
        +     def backward(ctx, grad_out):
        +         x, out = ctx.saved_tensors
        +         return grad_out * (1 - 2 * x * out)
    """,
    "dawson, g in numpy": """
        + class Dawson(Function):
        +     @staticmethod
        +     def forward(ctx, x):
        +         ctx.save_for_backward(x)
        +         return in_numpy(dawsn, x)
        +
        +     @staticmethod
        +     def backward(ctx, grad_out):
        +         (x,) = ctx.saved_tensors
        +         return in_numpy(lambda g, x: g * (1 - 2 * x * dawsn(x)), grad_out, x)
    """,
    "dawson_twice, all numpy": """
        - return grad_out * in_numpy(dawson_first, x)
        + return in_numpy(lambda grad_out, x: grad_out * dawson_first(x), grad_out, x)
        - def backward(ctx, grad_grad_x):
        + def backward(ctx, h):
        - return (
        -     grad_grad_x * in_numpy(dawson_first, x),
        -     grad_grad_x * grad_out * in_numpy(dawson_second, x),
        + return in_numpy(lambda h, x: h * dawson_first(x), h, x), in_numpy(
        +     lambda h, grad_out, x: h * grad_out * dawson_second(x), h, grad_out, x
    """,
    "dawson_twice, args swapped": """
        - def forward(ctx, grad_out, x):
        + def forward(ctx, x, grad_out):
        - def backward(ctx, grad_grad_x):
        + def backward(ctx, h):
        - return (
        -     grad_grad_x * in_numpy(dawson_first, x),
        -     grad_grad_x * grad_out * in_numpy(dawson_second, x),
        - )
        + return h * grad_out * in_numpy(dawson_second, x), h * in_numpy(dawson_first, x)
        - return DawsonBackward.apply(grad_out, x)
        + return DawsonBackward.apply(x, grad_out)
    """,
    "growth, only what is needed": """
        - exp = in_numpy(np.exp, b)
        - return grad_out * exp, grad_out * a * exp
        + return grad_out * in_numpy(np.exp, b), grad_out * a * in_numpy(np.exp, b)
        - exp = in_numpy(np.exp, b)
        - for_grad_out = (h_a + h_b * a) * exp
        - for_a = h_b * grad_out * exp
        - for_b = (h_a + h_b * a) * grad_out * exp
        - return for_grad_out, for_a, for_b
        + needs_g, needs_a, needs_b = ctx.needs_input_grad
        + along = (h_a + h_b * a) * in_numpy(np.exp, b)
        + return (
        +     along if needs_g else None,
        +     h_b * grad_out * in_numpy(np.exp, b) if needs_a else None,
        +     along * grad_out if needs_b else None,
        + )
        - return a * in_numpy(np.exp, b)
        + return a * in_numpy(np.exp, b)
        - a, b = ctx.saved_tensors
        - return GrowthBackward.apply(grad_out, a, b)
        + return GrowthBackward.apply(grad_out, *ctx.saved_tensors)
    """,
    "solve, asks what is needed": """
        - u = in_numpy(linalg.solve, A, b)
        + u = in_numpy(np.linalg.solve, A, b)
        - w = FullSolve.apply(A.t(), grad_out)
        - return -torch.outer(w, u), w
        + w = FullSolve.apply(A.T, grad_out)
        + return -w[:, None] * u if ctx.needs_input_grad[0] else None, w
    """,
    "solve, with the result computed again": """
        - u = in_numpy(linalg.solve, A, b)
        - ctx.save_for_backward(A, u)
        - return u
        + ctx.save_for_backward(A, b)
        + return in_numpy(np.linalg.solve, A, b)
        - A, u = ctx.saved_tensors
        + A, b = ctx.saved_tensors
        - return -torch.outer(w, u), w
        + return -torch.outer(w, FullSolve.apply(A, b)), w
    """,
    "library, all in backward": """
        + class Mended(Function):
        +     @staticmethod
        +     def forward(ctx, x):
        +         ctx.save_for_backward(x)
        +         return torch.exp(-x * x / 2)
        +
        +     @staticmethod
        +     def backward(ctx, grad_out):
        +         (x,) = ctx.saved_tensors
        +         return -grad_out * x * torch.exp(-x * x / 2)
    """,
    "reciprocal, output saved": """
        - ctx.save_for_backward(x)
        - return 1 / x
        + out = torch.reciprocal(x)
        + ctx.save_for_backward(out)
        + return out
        - (x,) = ctx.saved_tensors
        - return -grad_out / x**2
        + (out,) = ctx.saved_tensors
        + return -grad_out * out * out
    """,
    "reciprocal, a mask returned, too": """
        - ctx.save_for_backward(x)
        - return 1 / x
        + mask, out = x > 0, 1 / x
        + ctx.mark_non_differentiable(mask)
        + ctx.save_for_backward(out, mask)
        + return out, mask
        - def backward(ctx, grad_out):
        -     (x,) = ctx.saved_tensors
        -     return -grad_out / x**2
        + def backward(ctx, grad_out, _):
        +     out, _mask = ctx.saved_tensors
        +     return -grad_out * out**2

        + def answer(x):
        +     return Reciprocal.apply(x)[0]
    """,
    "sigmoid, setup_context": """
        - def forward(ctx, x):
        -     out = 1 / (1 + torch.exp(-x))
        -     ctx.save_for_backward(out)
        -     return out
        + def forward(x):
        +     return torch.sigmoid(x)
        +
        + @staticmethod
        + def setup_context(ctx, inputs, output):
        +     ctx.save_for_backward(output)
    """,
    "dawson_twice, by its output, in torch": """
        - return in_numpy(dawsn, x)
        + out = in_numpy(dawsn, x)
        + ctx.save_for_backward(x, out)
        + return out
        - (x,) = ctx.saved_tensors
        - return DawsonBackward.apply(grad_out, x)
        + x, out = ctx.saved_tensors
        + return grad_out * (1 - 2 * x * out)
    """,
    "gate, recomputed": """
        - s = torch.sigmoid(b)
        - ctx.save_for_backward(a, s)
        - return a * s, s
        + ctx.save_for_backward(a, b)
        + return a * torch.sigmoid(b)
        - def backward(ctx, grad_out, grad_s):
        -     a, s = ctx.saved_tensors
        + def backward(ctx, grad_out):
        +     a, b = ctx.saved_tensors
        +     s = torch.sigmoid(b)
        - grad_b = grad_out * a * s * (1 - s) + grad_s * s * (1 - s)
        + grad_b = grad_out * a * s * (1 - s)
        - out, _s = Gate.apply(a, b)
        - return out
        + return Gate.apply(a, b)
    """,
    "log_cosh, logaddexp": """
        - size = x.abs()
        - return size + torch.log1p(torch.exp(-2 * size)) - math.log(2)
        + return torch.logaddexp(x, -x) - math.log(2)
    """,
    "soft_round, by sin squared": """
        - return torch.round(x)
        + return torch.floor(x + 0.5)
        - return grad_out * (1 - torch.cos(2 * torch.pi * x))
        + return grad_out * 2 * torch.sin(torch.pi * x) ** 2
    """,
    "sin_cos, from the input, in torch": """
        - ctx.save_for_backward(*output)
        + ctx.save_for_backward(*inputs)
        - sin, cos = ctx.saved_tensors
        - return grad_sin * cos - grad_cos * sin
        + (x,) = ctx.saved_tensors
        + return grad_sin * torch.cos(x) - grad_cos * torch.sin(x)
    """,
    "sin_cos, by the operator itself": """
        - ctx.save_for_backward(*output)
        + ctx.save_for_backward(*inputs)
        - sin, cos = ctx.saved_tensors
        + sin, cos = op(*ctx.saved_tensors)
    """,
    "log_det, solve": """
        - return torch.linalg.slogdet(A)[1]
        + return torch.logdet(A)
        - return grad_out * torch.linalg.inv(A).T
        + return grad_out * torch.linalg.solve(A.T, torch.eye(len(A), dtype=A.dtype))
    """,
}
