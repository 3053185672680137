"""Adam for R runs side by side, each with its own learning rate and weight decay."""

import torch
from torch import Tensor


class Adam:
    """Kingma and Ba's Adam with L2 weight decay, as ``torch.optim.Adam`` computes it.

    torch's own has one learning rate a tensor; here it varies along the leading run dimension.
    """

    beta1, beta2, eps = 0.9, 0.999, 1e-8

    def __init__(
        self, weights: dict[str, Tensor], learning_rate: Tensor, weight_decay: Tensor
    ) -> None:
        self.weights = weights  # [R, ...] each
        self.learning_rate, self.weight_decay = learning_rate, weight_decay  # [R]
        self.mean = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.square = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.steps = 0

    @torch.no_grad()
    def step(self, gradients: dict[str, Tensor]) -> None:
        self.steps += 1
        correction1 = 1 - self.beta1**self.steps
        correction2 = 1 - self.beta2**self.steps
        for name, weight in self.weights.items():
            per_run = (-1, *[1] * (weight.dim() - 1))
            decay = self.weight_decay.view(per_run)
            rate = self.learning_rate.view(per_run)
            gradient = torch.addcmul(gradients[name], weight, decay)
            self.mean[name].lerp_(gradient, 1 - self.beta1)
            self.square[name].mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
            scale = torch.sqrt(self.square[name], out=gradient)
            scale.div_(correction2**0.5).add_(self.eps)
            weight.sub_((self.mean[name] / scale).mul_(rate / correction1))
