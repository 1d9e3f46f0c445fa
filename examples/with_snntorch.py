"""CaRe-BN in a snnTorch network: Linear and norm see the whole sequence, then the neuron goes through it step by step.

python examples/with_snntorch.py
"""

import sys

import torch

try:
    import snntorch as snn
    from snntorch import surrogate
except ImportError:
    sys.exit("this example needs snnTorch: pip install snntorch")
from tasks import balance, classify
from torch import Tensor, nn

from carebn import CaReBN


class Layer(nn.Module):
    """Linear → CaRe-BN → Leaky. Called once per sequence, the norm makes one update per pass; called inside of the loop
    it works too, but makes T updates from T times smaller samples."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(inputs, outputs), CaReBN(outputs, v_threshold=1.0)
        self.leaky = snn.Leaky(beta=0.75, threshold=1.0, spike_grad=surrogate.atan())

    def forward(self, x: Tensor) -> Tensor:
        membrane, spikes = self.leaky.reset_mem(), []
        for current in self.norm(self.linear(x)):
            spike, membrane = self.leaky(current, membrane)
            spikes.append(spike)
        return torch.stack(spikes)


def network(inputs: int, outputs: int, hidden: int = 64) -> nn.Module:
    return nn.Sequential(Layer(inputs, hidden), Layer(hidden, hidden), nn.Linear(hidden, outputs))


def run(net: nn.Module, x: Tensor) -> Tensor:
    return net(x)  # every layer starts its own membranes


if __name__ == "__main__":
    torch.manual_seed(0)
    print(f"digits: {classify(network(64, 10), run):.1%} of unseen ones right")
    torch.manual_seed(0)
    print(f"CartPole: up for {balance(network(4, 2), run):.0f} of 200 steps")
