"""Reparametrised samples with a gradient estimator of their own."""

import torch

from ..listed import listed, load, normal, positive_definite, uniform


def tril():
    return torch.linalg.cholesky(positive_definite(3).detach()).requires_grad_()


@listed("pyro-ppl", "pyro.distributions.avf_mvn._AVFMVNSample", surrogate=True)
def avf():
    apply = load("pyro.distributions.avf_mvn._AVFMVNSample").apply

    def fn(loc, scale_tril, control):
        torch.manual_seed(0)
        return apply(loc, scale_tril, control, (4, 3))

    return fn, [normal(3), tril(), normal(2, 2, 3, seed=1)]


@listed("pyro-ppl", "pyro.distributions.omt_mvn._OMTMVNSample", surrogate=True)
def omt():
    apply = load("pyro.distributions.omt_mvn._OMTMVNSample").apply

    def fn(loc, scale_tril):
        torch.manual_seed(0)
        return apply(loc, scale_tril, (4, 3))

    return fn, [normal(3), tril()]


@listed("pyro-ppl", "pyro.distributions.diag_normal_mixture._MixDiagNormalSample", surrogate=True)
def mixture():
    from pyro.distributions import MixtureOfDiagNormals

    def fn(locs, scales, logits):
        torch.manual_seed(0)
        return MixtureOfDiagNormals(locs, scales, logits).rsample((3,))

    return fn, [normal(2, 3), uniform(2, 3, low=0.5), normal(2)]


@listed(
    "pyro-ppl",
    "pyro.distributions.diag_normal_mixture_shared_cov._MixDiagNormalSharedCovarianceSample",
    surrogate=True,
)
def shared():
    from pyro.distributions import MixtureOfDiagNormalsSharedCovariance

    def fn(locs, scale, logits):
        torch.manual_seed(0)
        return MixtureOfDiagNormalsSharedCovariance(locs, scale, logits).rsample((3,))

    return fn, [normal(2, 3), uniform(3, low=0.5), normal(2)]


@listed("pyro-ppl", "pyro.distributions.gaussian_scale_mixture._GSMSample", surrogate=True)
def scale_mixture():
    from pyro.distributions import GaussianScaleMixture

    def fn(coord, logits, scale):
        torch.manual_seed(0)
        return GaussianScaleMixture(coord, logits, scale).rsample((3,))

    return fn, [uniform(4, low=0.5), normal(2), uniform(2, low=0.5, seed=1)]
