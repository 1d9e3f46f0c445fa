"""CaRe-BN in a SpikingJelly network: where a ``layer.BatchNorm1d`` would stand, a ``CaReBN``.

python examples/with_spikingjelly.py
"""

import sys

import torch

try:
    from spikingjelly.activation_based import functional, layer, neuron, surrogate
except ImportError:
    sys.exit("this example needs SpikingJelly: pip install spikingjelly")
from tasks import balance, classify
from torch import Tensor, nn

from carebn import CaReBN


def network(inputs: int, outputs: int, hidden: int = 64) -> nn.Module:
    """``v_threshold`` starts CaRe-BN at half the threshold of the neurons behind it, as in the paper."""

    def lif() -> nn.Module:
        return neuron.LIFNode(tau=2.0, v_threshold=1.0, surrogate_function=surrogate.ATan())

    net = nn.Sequential(
        layer.Linear(inputs, hidden), CaReBN(hidden, v_threshold=1.0), lif(),
        layer.Linear(hidden, hidden), CaReBN(hidden, v_threshold=1.0), lif(),
        layer.Linear(hidden, outputs),
    )  # fmt: skip
    functional.set_step_mode(net, "m")  # the whole sequence at once: one update of the moving statistics per pass
    return net


def run(net: nn.Module, x: Tensor) -> Tensor:
    functional.reset_net(net)
    return net(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    print(f"digits: {classify(network(64, 10), run):.1%} of unseen ones right")
    torch.manual_seed(0)
    print(f"CartPole: up for {balance(network(4, 2), run):.0f} of 200 steps")
