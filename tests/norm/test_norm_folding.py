"""A normaliser folded into the linear layer before it: by hand, against the unfolded pair, and what is refused."""

import pytest
import torch
from torch import nn

from carebn.norm import BN, BNTT, NORMS, CaReBN2d, Norm, make_norm
from carebn.norm.folding import fold_norm


@torch.no_grad()
def test_by_hand() -> None:
    """x → 2x + 1, then mean 3, variance 4 (ε = 0), γ = 10, β = −1: 5·(2x + 1 − 3) − 1 = 10x − 11."""
    linear, norm = nn.Linear(1, 1), BN(1, eps=0.0)
    for tensor, value in (
        (linear.weight, 2.0), (linear.bias, 1.0), (norm.running_mean, 3.0), (norm.running_var, 4.0),
        (norm.weight, 10.0), (norm.bias, -1.0),
    ):  # fmt: skip
        tensor.fill_(value)
    folded = fold_norm(linear, norm)
    assert (folded.weight.tolist(), folded.bias.tolist(), folded.scale) == ([[10.0]], [[-11.0]], None)
    assert folded.weight.dtype == folded.bias.dtype == torch.float64


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("name", sorted(NORMS))
@torch.no_grad()
def test_every_norm_in_float64(name: str, steps: int) -> None:
    torch.manual_seed(0)
    linear, norm = nn.Linear(6, 4), make_norm(name, 4, time_steps=steps)
    for _ in range(5):
        norm(linear(torch.randn(steps, 30, 6) + 2))  # moves the statistics
    for parameter in norm.parameters():
        parameter.uniform_(0.5, 1.5)
    before = {key: tensor.clone() for key, tensor in norm.state_dict().items()}
    weight, bias, scale = fold_norm(linear, norm.eval(), steps)
    for key, tensor in norm.state_dict().items():  # it is left alone
        assert tensor.dtype == before[key].dtype
        assert tensor.equal(before[key])
    assert linear.weight.dtype == torch.float32
    x = torch.randn(steps, 9, 6, dtype=torch.float64)
    product = x @ weight.t()
    ours = (product if scale is None else product * scale[:, None]) + bias[:, None]
    torch.testing.assert_close(ours, norm.double()(linear.double()(x)), rtol=1e-12, atol=1e-12)


def test_a_linear_alone_and_one_without_a_bias() -> None:
    linear = nn.Linear(3, 2)
    assert fold_norm(linear).weight.equal(linear.weight.double())
    assert fold_norm(linear).bias.equal(linear.bias.double()[None])
    assert fold_norm(nn.Linear(3, 2, bias=False)).bias.tolist() == [[0.0, 0.0]]


class Halving(BN):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / 2


@pytest.mark.parametrize(
    ("linear", "norm", "said"),
    [
        (nn.Conv1d(3, 2, 1), None, "a Conv1d where a Linear is expected"),
        (nn.Linear(3, 2), nn.LayerNorm(2), "fold a LayerNorm into the weights before it"),
        (nn.Linear(3, 2), Halving(2), "fold a Halving into the weights before it"),
        (nn.Linear(3, 2), BNTT(2, 4), "BNTT has 4 steps in a network of 5"),
    ],
)
def test_what_is_not_known_is_refused_by_name(linear: nn.Module, norm: Norm | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fold_norm(linear, norm, steps=5)


def test_a_norm_of_another_size_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="a BN of 3 features into a Linear with 2 rows of weights and 2 biases"):
        fold_norm(nn.Linear(4, 2), BN(3))


def test_a_norm_that_takes_the_batch_in_inference_too_is_refused() -> None:
    class Always(BN):
        def uses_batch(self) -> bool:
            return True

    with pytest.raises(ValueError, match="do not know how to fold a Always"):
        fold_norm(nn.Linear(4, 3), Always(3))
    with pytest.raises(ValueError, match="do not know how to fold a CaReBN2d"):
        fold_norm(nn.Linear(4, 3), CaReBN2d(3))
