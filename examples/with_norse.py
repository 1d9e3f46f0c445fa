"""CaRe-BN in a Norse network: in a ``SequentialState``, before each layer of neurons.

python examples/with_norse.py
"""

import sys

import torch

try:
    import norse.torch as norse
except ImportError:
    sys.exit("this example needs Norse: pip install norse")
from tasks import balance, classify
from torch import Tensor, nn

from carebn import CaReBN

# Norse's own time constants are meant for a thousand steps of 1 ms. For a few steps: half the current and a quarter of
# the potential decay in each. (Its parameters are tensors.)
FAST = norse.LIFParameters(
    tau_syn_inv=torch.as_tensor(500.0), tau_mem_inv=torch.as_tensor(250.0), v_th=torch.as_tensor(0.25)
)


def network(inputs: int, outputs: int, hidden: int = 64) -> nn.Module:
    """Linear, CaReBN and ``norse.LIF`` all take whole sequences [T, B, features]: nothing has to be lifted."""
    return norse.SequentialState(
        nn.Linear(inputs, hidden), CaReBN(hidden), norse.LIF(FAST),
        nn.Linear(hidden, hidden), CaReBN(hidden), norse.LIF(FAST),
        nn.Linear(hidden, outputs),
    )  # fmt: skip


def run(net: nn.Module, x: Tensor) -> Tensor:
    out, _state = net(x)  # without a state to go on from, it starts afresh
    return out


if __name__ == "__main__":
    torch.manual_seed(0)
    print(f"digits: {classify(network(64, 10), run):.1%} of unseen ones right")
    torch.manual_seed(0)
    print(f"CartPole: up for {balance(network(4, 2), run):.0f} of 200 steps")
