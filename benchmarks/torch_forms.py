"""The synthetic problem's derivatives in PyTorch, by automatic differentiation: vectorised, and agent by agent."""

from __future__ import annotations

import numpy as np
import torch
from torch.func import grad, jacfwd, vmap


def _loss(y, A, b):
    return torch.nn.functional.softplus(-b * (A @ y)).sum()


def _lower(x, y, A, b):
    return _loss(y, A, b) + 0.5 * (torch.exp(x) * y**2).sum()


class Vectorised:
    """One `vmap` over the agents around autodiff of the losses."""

    def __init__(self, arrays: list[np.ndarray], W: np.ndarray):
        self.A, self.b, self.A_upper, self.b_upper = (torch.from_numpy(array) for array in arrays)
        self.W, (self.n, self.p) = torch.from_numpy(W), self.A[:, 0].shape
        self._gy, self._fy = grad(_lower, argnums=1), grad(_loss)

    def zeros(self, *shape: int):
        return torch.zeros(self.n, *shape)

    def mix(self, v):
        return (self.W @ v.reshape(self.n, -1)).reshape(v.shape)

    def each(self, function, *arguments):
        return vmap(function)(*arguments)

    def gy(self, x, y):
        return self.each(self._gy, x, y, self.A, self.b)

    def fy(self, x, y):
        return self.each(self._fy, y, self.A_upper, self.b_upper)

    def H(self, x, y):
        return self.each(jacfwd(self._gy, argnums=1), x, y, self.A, self.b)

    def Jt(self, x, y):
        return self.each(jacfwd(self._gy, argnums=0), x, y, self.A, self.b)

    def contract(self, Z, v):
        return (v[:, None] @ Z)[:, 0]

    def done(self, x) -> np.ndarray:
        return x.numpy()


class Loop(Vectorised):
    """A Python loop over the agents, each with its own autograd calls: how such code is often written."""

    def mix(self, v):
        return torch.stack([torch.stack([w * v[j] for j, w in enumerate(row) if w]).sum(0) for row in self.W.tolist()])

    def each(self, function, *arguments):
        return torch.stack([function(*own) for own in zip(*arguments, strict=True)])
