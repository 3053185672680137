"""Adam for R runs side by side, each with its own learning rate and weight decay."""

import torch
import torch.nn.functional as F
from torch import Tensor

# torch computes the last few numbers of an array, those that fill no vector register, by other
# instructions, which round differently.  Rows of whole registers make a run's update independent
# of its neighbours to the last bit.
_REGISTERS = 16


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
        self.mean = {name: torch.zeros_like(_rows(w)) for name, w in weights.items()}
        self.square = {name: torch.zeros_like(_rows(w)) for name, w in weights.items()}
        self.steps = 0

    @torch.no_grad()
    def step(self, gradients: dict[str, Tensor]) -> None:
        self.steps += 1
        correction1 = 1 - self.beta1**self.steps
        correction2 = 1 - self.beta2**self.steps
        rate = (self.learning_rate / correction1)[:, None]
        decay = self.weight_decay[:, None]
        for name, weight in self.weights.items():
            value = _rows(weight)  # [R, n]
            gradient = torch.addcmul(_rows(gradients[name]), value, decay)
            self.mean[name].lerp_(gradient, 1 - self.beta1)
            self.square[name].mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
            scale = torch.sqrt(self.square[name], out=gradient)
            scale.div_(correction2**0.5).add_(self.eps)
            value = value - torch.div(self.mean[name], scale, out=gradient).mul_(rate)
            weight.copy_(value[:, : weight[0].numel()].view_as(weight))


def _rows(weight: Tensor) -> Tensor:
    """A row a run, filled up with zeros to whole registers.  [R, ...] -> [R, n]"""
    rows = weight.detach().reshape(weight.shape[0], -1)
    return F.pad(rows, (0, -rows.shape[1] % _REGISTERS))
