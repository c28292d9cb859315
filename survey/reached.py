"""What is known of single rows: under which conditions, why, where it is discussed.

Everything here was read in the package's source at the version that is pinned, or run. Which
function of a package applies a Function is not written down but looked up (`places`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """What a row says besides numbers.

    Attributes:
        by: the public call, where `places` cannot find it.
        where: under which conditions a user meets it; "" for by default.
        apart: why it is not counted: deprecated, applied nowhere, deliberate; else "".
        why: the mechanism as the source shows it, where that says more than the cause.
        cause: the finding that the source shows, where `diagnose` names another or none.
        thread: address of a public thread about it, or "".
    """

    by: str = ""
    where: str = ""
    apart: str = ""
    why: str = ""
    cause: str = ""
    thread: str = ""


OLD_MEMCNN = Known(
    where="with implementation_fwd=0 or 1",
    apart="deprecated by the package, which says so when it is used",
)
LARGE = "matrices of more than 800 rows (settings.max_cholesky_size); smaller ones by Cholesky"
CHECKPOINT = "by .backward(create_graph=True) alone: `torch.autograd.grad` raises, with the reason"
TANGENT = (
    "its gradient is one for a step on the group, kept in as many numbers as the element has; "
    "the second backward differentiates the saved element as if they were its coordinates"
)
RECOMPUTED = "grad_out_path_cut"
LOW_BAND = "backward returns the gradients of both bands only `if ctx.needs_input_grad[0]`"
KERNEL = "x are the points, and forward keeps the kernel at them"
RAW_KERNEL = "the registered backward calls a kernel, which has no derivative of its own"
PLAIN = "with optimized_kernel=True, the default; right with False"
THIRD = "third derivatives of the harmonics raise, with the reason"
CONTIGUOUS = "contiguous tensors; of others an error"
NO_PHI = "where no phi is given, wrong by {} too"
INVERTED = "the inputs are computed back from the outputs where nothing is recorded"

KNOWN = {
    "deepinv:LinearSplineDerivativeFunc": Known(
        where="with flat coefficients; with the package's own, (channels, knots), backward raises",
        apart="applied nowhere in its package",
        why="backward leaves `grad_out` out of the coefficients' gradient",
    ),
    "deepinv:QuadraticSplineFunc": Known(apart="applied nowhere in its package"),
    "entmax:BudgetBisectFunction": Known(
        where="by the scores; a `budget` that is a tensor gets None for its gradient"
    ),
    "entmax:Entmax15Function": Known(
        where="where a probability is 0", why="backward takes the square root of the result"
    ),
    "entmax:EntmaxBisectFunction": Known(
        where="with an alpha that is learned; by the scores alone it is right, or NaN where a "
        "probability is 0"
    ),
    "featomic-torch:featomic::CalculatorHolder": Known(
        by="featomic.torch.SoapRadialSpectrum(...).compute, and its other calculators",
        apart="its backward warns, once, that second derivatives by positions are not implemented",
        why="that part of the second backward is left out",
        cause="grad_out_path_cut",
    ),
    "fairscale:CheckpointFunction": Known(by="fairscale.nn.checkpoint_wrapper", where=CHECKPOINT),
    "geomstats:_Logm": Known(
        by="geomstats.backend.linalg.logm",
        where="with the PyTorch backend; imported here with NumPy's former name `trapz` put back",
    ),
    "gpytorch:RBFCovariance": Known(
        where="one lengthscale for all inputs (the default), inputs that need no gradient",
        thread="https://github.com/cornellius-gp/gpytorch/issues/831",
    ),
    "gpytorch:MaternCovariance": Known(
        where="one lengthscale for all inputs (the default), inputs that need no gradient",
        thread="https://github.com/cornellius-gp/gpytorch/issues/831",
    ),
    "gpytorch:LogNormalCDF": Known(where="below x = -1"),
    "gpytorch:ComputePredictiveUpdates": Known(
        where="in training, with more data in a batch than inducing points"
    ),
    "invtorch:CheckpointFunction": Known(
        by="invtorch.utils.checkpoint.checkpoint", where=CHECKPOINT, cause=RECOMPUTED
    ),
    "iunets:expm": Known(
        by='InvertibleDownsampling2D(..., method="exp")',
        where="in float64 right if the 1-norm of weight - weightᵀ is between 1.8 and 4.7",
        why="below order 13 `V = U + b[0]*I` overwrites V; squaring adds R @ L twice, never L @ R",
    ),
    "kymatio:ModulusStable": Known(where="NaN where a coefficient is exactly 0"),
    "omnibias-convex:_QPLayerFn": Known(
        where="by A, where a bound holds with equality; by Q in float32, which forward converts; "
        "by Q, c and b in float64 it is right"
    ),
    "kornia:_NullSpaceBasis": Known(
        by="kornia.geometry.epipolar.run_5point",
        where="six to eight points; with five, or nine and more, it is not used",
    ),
    "liger-kernel:LigerTiledMLPFunction": Known(
        where="its package imports Triton; run here by the module alone"
    ),
    "linear-operator:InvQuadLogdet": Known(where=LARGE),
    "linear-operator:Diagonalization": Known(where=LARGE),
    "linear-operator:Matmul": Known(
        where="Kronecker products, roots, products and kernels as operators; dense, Toeplitz and "
        "diagonal ones and their sums are right",
        why="the default `_bilinear_derivative` detaches what the operator is made of",
        cause="untracked_backward",
    ),
    "linear-operator:RootDecomposition": Known(where=LARGE),
    "linear-operator:Solve": Known(
        by="LinearOperator.solve",
        where="a vector on the right that needs no gradient, or a left tensor; with a matrix alone "
        "it is right, with a vector that needs a gradient it raises",
        thread="https://github.com/cornellius-gp/gpytorch/pull/603",
    ),
    "linear-operator:SqrtInvMatmul": Known(
        by="LinearOperator.sqrt_inv_matmul",
        why="forward keeps solves, and weights that SciPy computes",
        cause="intermediate_saved",
    ),
    "mambapy:PScan": Known(by="mambapy.pscan.pscan"),
    "memcnn:AdditiveBlockFunction": OLD_MEMCNN,
    "memcnn:AdditiveBlockFunction2": OLD_MEMCNN,
    "memcnn:AffineBlockFunction": OLD_MEMCNN,
    "memcnn:AffineBlockFunction2": Known(
        where=OLD_MEMCNN.where,
        apart=OLD_MEMCNN.apart,
        why="backward adds `y2_grad` to the gradient by x2 without the factor of forward",
    ),
    "memcnn:InvertibleCheckpointFunction": Known(where=CHECKPOINT, why=INVERTED, cause=RECOMPUTED),
    "normflows:MemoryEfficientLogDetEstimator": Known(
        by="normflows.flows.Residual(net), whose default is reduce_memory=True",
        where="in training, if the loss weighs the rows of a batch differently; right with "
        "reduce_memory=False",
        why="backward multiplies all gradients by the first row's `grad_logdetgrad[0]`",
    ),
    "performer-pytorch:_ReversibleFunction": Known(
        where="with reversible=True", why=INVERTED, cause=RECOMPUTED
    ),
    "reformer-pytorch:_ReversibleFunction": Known(why=INVERTED, cause=RECOMPUTED),
    "revtorch:_ReversibleModuleFunction": Known(
        where="with nothing non-linear behind it; else its own assertion raises",
        why=INVERTED,
        cause=RECOMPUTED,
    ),
    "pypose:SO3_Act": Known(by="X.Act(p) of a rotation", why=TANGENT),
    "pypose:SO3_Inv": Known(by="X.Inv() of a rotation", why=TANGENT),
    "pypose:SO3_Mul": Known(by="X @ Y of rotations", why=TANGENT),
    "pypose:SO3_AdjXa": Known(by="X.Adj(a) of a rotation", why=TANGENT),
    "pypose:SE3_Act": Known(by="X.Act(p) of a pose", why=TANGENT),
    "pypose:SE3_Inv": Known(by="X.Inv() of a pose", why=TANGENT),
    "pypose:SE3_Mul": Known(by="X @ Y of poses", why=TANGENT),
    "pypose:SE3_AdjXa": Known(by="X.Adj(a) of a pose", why=TANGENT),
    "pypose:SE3_AdjTXa": Known(
        by="X.AdjT(a) of a pose",
        where="where the pose has a translation; rotations (SO3) are right",
        why="forward applies Ad(X)⁻¹, backward Ad(X)",
    ),
    "iunets:cayley": Known(
        by='InvertibleDownsampling2D(..., method="cayley"), the default',
        why="backward returns 2 (I - A)⁻¹ G (I + A)⁻¹ C(A); it should be -2 (I - A)⁻¹ G (I - A)⁻¹",
    ),
    "pysdtw:SoftDTWcpu": Known(
        by="pysdtw.SoftDTW(use_cuda=False)",
        why="backward computes in NumPy",
        cause="numpy_in_backward",
    ),
    "pytorch-wavelets:FWD_J1": Known(why="backward writes into a leaf that it makes"),
    "pytorch-wavelets:FWD_J2PLUS": Known(why="backward writes into a leaf that it makes"),
    "pytorch-wavelets:SFB1D": Known(
        by="DWT1DInverse",
        where="the low band needs no gradient",
        why=LOW_BAND,
        thread="https://github.com/fbcotter/pytorch_wavelets/issues/65",
    ),
    "pytorch-wavelets:SFB2D": Known(
        by="DWTInverse", where="the low band needs no gradient", why=LOW_BAND
    ),
    "pytorch-wavelets:SmoothMagFn": Known(apart="applied nowhere in its package"),
    "speechbrain:QuaternionLinearCustomBackward": Known(where="with autograd=False"),
    "roma:_ProcrustesManualDerivatives": Known(
        by="roma.procrustes", where='method "svd": the default, but for rotations in 3 x 3'
    ),
    "torch:CheckpointFunction": Known(
        where="use_reentrant=True; " + CHECKPOINT,
        thread="https://github.com/pytorch/pytorch/issues/33999",
    ),
    "torchesnufft:InterpFunction": Known(where=KERNEL, cause="intermediate_saved"),
    "torchesnufft:SpreadFunction": Known(where=KERNEL, cause="intermediate_saved"),
    "torchdiffeq:OdeintAdjointMethod": Known(
        thread="https://github.com/rtqichen/torchdiffeq/issues/29"
    ),
    "torchdyn:_ODEProblemFunc": Known(
        by='torchdyn.core.ODEProblem(..., sensitivity="adjoint")',
        why="a graph that its backward differentiates is freed before the second pass",
    ),
    "torchopt:UpdatesOp": Known(by="torchopt.adam(..., use_accelerated_op=True)"),
    "transformers:_InputOnlyGrad": Known(
        apart="gradients by the parameters are left out on purpose",
        why="backward differentiates a graph that forward kept, without create_graph",
    ),
    "torch-harmonics:disco_kernels::_disco_s2_contraction_optimized": Known(
        by="torch_harmonics.DiscreteContinuousConvS2", where=PLAIN, why=RAW_KERNEL
    ),
    "torch-harmonics:disco_kernels::_disco_s2_fused_conv_optimized": Known(
        by="torch_harmonics.DiscreteContinuousConvS2(..., fused=True)", where=PLAIN, why=RAW_KERNEL
    ),
    "torch-harmonics:disco_kernels::_disco_s2_transpose_contraction_optimized": Known(
        by="torch_harmonics.DiscreteContinuousConvTransposeS2", where=PLAIN, why=RAW_KERNEL
    ),
    "torch-harmonics:attention_kernels::_neighborhood_s2_attention_optimized": Known(
        by="torch_harmonics.NeighborhoodAttentionS2",
        where="with optimized_kernel=True, the default; with False an error",
        why=RAW_KERNEL,
    ),
    "sphericart-torch:sphericart_torch::spherical_harmonics": Known(
        by="sphericart.torch.SphericalHarmonics(l_max).compute"
    ),
    "sphericart-torch:sphericart_torch::solid_harmonics": Known(
        by="sphericart.torch.SolidHarmonics(l_max).compute"
    ),
    "sphericart-torch:sphericart_torch::spherical_harmonics_with_gradients": Known(
        by="sphericart.torch.SphericalHarmonics(l_max).compute_with_gradients", why=THIRD
    ),
    "sphericart-torch:sphericart_torch::solid_harmonics_with_gradients": Known(
        by="sphericart.torch.SolidHarmonics(l_max).compute_with_gradients", why=THIRD
    ),
    "nvalchemi-toolkit-ops:nvalchemiops::spline_spread": Known(
        by="nvalchemiops.torch.spline.spline_spread", where=CONTIGUOUS
    ),
    "nvalchemi-toolkit-ops:nvalchemiops::spline_gather": Known(
        by="nvalchemiops.torch.spline.spline_gather", where=CONTIGUOUS
    ),
    "nvalchemi-toolkit-ops:nvalchemiops::_coulomb_energy_list": Known(
        by="nvalchemiops.torch.interactions.electrostatics.coulomb.coulomb_energy",
        why="Warp's tape computes backward, which autograd does not follow",
    ),
    "vesin-torch:vesin::_NeighborList": Known(
        by='vesin_torch.NeighborList(...).compute(..., quantities="d")',
        where='distances; the vectors, quantities="D", are linear in the points, and right',
        why="backward divides the vectors by the distances as forward found them, in C++",
        cause="intermediate_saved",
    ),
    "metatomic-torch:metatomic::register_autograd_neighbors": Known(
        by="metatomic.torch.register_autograd_neighbors"
    ),
    "zuko:AdaptiveCheckpointAdjoint": Known(where=NO_PHI.format("x alone")),
    "zuko:Bisection": Known(where=NO_PHI.format("y alone")),
    "zuko:GaussLegendre": Known(where=NO_PHI.format("a alone, b alone")),
    "xitorch:_SolveIVP": Known(
        where='with method="rk45", the default, or "rk23"; with a fixed step ("rk4", "rk38", '
        '"euler") both derivatives are those of the equation, which the steps approximate'
    ),
    "xitorch:_Quadrature": Known(
        why="a nested autograd.grad follows `grad_out` too, so that its share is counted twice",
        cause="path_counted_twice",
    ),
}
