"""A spiking layer: Linear → norm → neuron, all T steps at once."""

from contextlib import suppress
from typing import Any

from torch import Tensor, nn

from carebn.introspection import stands_for
from carebn.kernels import fused
from carebn.kernels.plans import NotForKernelsError
from carebn.kernels.rates import answer, is_asked
from carebn.network.straight_through import straight_through
from carebn.neuron import Neuron, make_neuron
from carebn.norm import Norm, make_norm
from carebn.router import plan_layer


@stands_for("layer", "forward", "linear norm neuron time_steps")
class SpikingLayer(nn.Module):
    """Linear → norm → neuron: ``layer(x: [T, B, in]) → spikes [T, B, out]``, all T steps at once.

    An input of shape [1, B, in] is constant over ``time_steps``. ``norm`` and ``neuron`` are names in ``NORMS`` and
    ``NEURONS``; ``norm_options`` go to the normaliser.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        norm: str = "care",
        neuron: str | Neuron = "clif",
        time_steps: int = 5,
        norm_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.time_steps = time_steps
        self.linear = nn.Linear(in_features, out_features)
        self.neuron = make_neuron(neuron)
        self.neuron.check_steps(time_steps)
        self.norm = make_norm(
            norm, out_features, time_steps, **{"v_threshold": self.neuron.v_threshold, **(norm_options or {})}
        )

    def forward(self, x: Tensor, stimulation: Tensor | None = None) -> Tensor:
        """``stimulation`` [B, in]: what an encoder made the spikes x from; the gradient goes there."""
        if x.ndim != 3:
            raise ValueError(f"a spiking layer expects input of shape [T, B, features], got {tuple(x.shape)}")
        steps = self.time_steps if x.shape[0] == 1 else x.shape[0]
        norm, neuron = self.norm, self.neuron
        plan = plan_layer(self, x, steps)
        if not isinstance(plan, str):
            neuron.check_steps(steps)
            if isinstance(norm, Norm):
                norm.check_input(x.new_empty(1).expand(steps, x.shape[1], plan.weight.shape[0]))
            with suppress(NotForKernelsError):
                fired, rate = fused.spiking_layer(plan, x, stimulation, steps, is_asked(self))
                if rate is not None:
                    answer(rate)
                return fired
        if stimulation is not None:
            x = straight_through(x, stimulation)
            if is_asked(self):
                answer(x.mean())
        z = self.linear(x)
        spikes: Tensor = neuron(norm(z.expand(steps, -1, -1)))
        return spikes
