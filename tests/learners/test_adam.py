import pytest
import torch

from lpgnn.learners.adam import Adam

RATES = [1e-2, 1e-3, 0.3, 1e-2]
DECAYS = [0.0, 1e-2, 1e-4, 0.5]
SHAPES = {"matrix": (5, 3), "bias": (3,), "heads": (2, 5, 3)}


def gradient_at(weight: torch.Tensor, step: int, run: int) -> torch.Tensor:
    """A gradient that depends on the weight, of changing sign and of very different sizes."""
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(100 * step + run))
    return (weight.detach() - 1) * 0.1 + noise * 10.0 ** (run - 2)


def test_adam_equals_torchs_adam_run_by_run() -> None:
    generator = torch.Generator().manual_seed(0)
    start = {name: torch.randn(4, *shape, generator=generator) for name, shape in SHAPES.items()}
    weights = {name: w.clone().requires_grad_() for name, w in start.items()}
    ours = Adam(weights, torch.tensor(RATES), torch.tensor(DECAYS))
    own = [{name: w[run].clone().requires_grad_() for name, w in start.items()} for run in range(4)]
    theirs = [
        torch.optim.Adam(list(w.values()), lr=RATES[run], weight_decay=DECAYS[run])
        for run, w in enumerate(own)
    ]
    for step in range(20):
        ours.step(
            {
                name: torch.stack([gradient_at(w[run], step, run) for run in range(4)])
                for name, w in weights.items()
            }
        )
        for run, optimizer in enumerate(theirs):
            for weight in own[run].values():
                weight.grad = gradient_at(weight, step, run)
            optimizer.step()
        for name, weight in weights.items():
            expected = torch.stack([w[name].detach() for w in own])
            torch.testing.assert_close(weight.detach(), expected, rtol=1e-5, atol=1e-6)
    for name, weight in weights.items():
        moved = (weight.detach() - start[name]).flatten(1).abs().amax(1)
        assert bool((moved > 10 * torch.tensor(RATES)).any())  # the runs went somewhere


def test_the_first_step_by_hand() -> None:
    """The first step is lr * g / (|g| + eps) with g = gradient + decay * weight."""
    weight = torch.tensor([[2.0, -1.0], [2.0, -1.0]], requires_grad=True)
    adam = Adam({"w": weight}, torch.tensor([0.1, 0.2]), torch.tensor([0.0, 3.0]))
    adam.step({"w": torch.tensor([[0.5, -4.0], [-1.0, 1.0]])})
    # Run 1: g = (-1 + 6, 1 - 3): signs + and -.
    expected = torch.tensor([[1.9, -0.9], [1.8, -0.8]])
    torch.testing.assert_close(weight.detach(), expected)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_broken_run_does_not_touch_the_others(broken: float) -> None:
    def three_steps(filling: float) -> torch.Tensor:
        weight = torch.ones(3, 4, requires_grad=True)
        adam = Adam({"w": weight}, torch.full((3,), 0.1), torch.full((3,), 0.01))
        gradient = torch.ones(3, 4)
        gradient[1] = filling
        for _ in range(3):
            adam.step({"w": gradient})
        return weight.detach()

    after = three_steps(broken)
    assert torch.equal(after[[0, 2]], three_steps(1.0)[[0, 2]])
    assert bool(after[1].isnan().all())


def test_gradients_are_left_as_they_are() -> None:
    weight = torch.ones(1, 4, requires_grad=True)
    gradient = torch.arange(4.0)[None]
    Adam({"w": weight}, torch.tensor([0.1]), torch.tensor([0.5])).step({"w": gradient})
    assert torch.equal(gradient, torch.arange(4.0)[None])
