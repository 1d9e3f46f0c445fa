"""What a neuromorphic chip may ask of a NIR file: each of it done, or refused with the reason."""

from dataclasses import dataclass

from carebn.deploy.graph import LEVELS, PolicyGraph


@dataclass(frozen=True)
class ChipLimits:
    """quantise           weights, biases and thresholds are whole numbers, of int8 or int16
    shared_threshold   all neurons of a layer have the same threshold
    max_neurons        neurons on the chip, at most
    max_fan_in         inputs of one neuron, at most
    """

    quantise: str | None = None
    shared_threshold: bool = False
    max_neurons: int | None = None
    max_fan_in: int | None = None

    def check_options(self, to: str) -> None:
        """What does not depend on the policy."""
        if self != NO_LIMITS and to != "nir":
            instead = f"; --to {to} has --weights int8" if to in ("c", "numpy") else ""
            raise ValueError(
                "--quantise, --shared-threshold, --max-neurons and --max-fan-in are limits of chips, for --to nir"
                + instead
            )
        if self.quantise is not None and self.quantise not in LEVELS:
            raise ValueError(f"--quantise {self.quantise} is not known; it can be {' or '.join(LEVELS)}")
        for name in ("max_neurons", "max_fan_in"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}")

    def check_network(self, network: PolicyGraph, always_on: bool) -> None:
        """Refuse a policy that is too large."""
        sizes = [layer.outputs + always_on for layer in network.layers]
        if self.max_neurons is not None and sum(sizes) > self.max_neurons:
            raise ValueError(
                f"the policy has {sum(sizes):,} neurons ({' + '.join(map(str, sizes))}), and --max-neurons allows "
                f"{self.max_neurons:,}; train one with a smaller --hidden"
            )
        inputs = [layer.inputs + always_on for layer in network.layers]
        if self.max_fan_in is not None and max(inputs) > self.max_fan_in:
            raise ValueError(
                f"a neuron of layer {inputs.index(max(inputs)) + 1} has {max(inputs):,} inputs, and --max-fan-in "
                f"allows {self.max_fan_in:,}; train one with a smaller --hidden"
            )

    def lines(self, network: PolicyGraph, always_on: bool) -> list[str]:
        """What was kept to."""
        sizes = [layer.outputs + always_on for layer in network.layers]
        inputs = max(layer.inputs for layer in network.layers) + always_on
        found = [f"neurons: {sum(sizes):,} ({' + '.join(map(str, sizes))}), each with at most {inputs:,} inputs"]
        if self.quantise is not None:
            last = LEVELS[self.quantise]
            found.append(f"whole numbers: weights from {-last:,} to {last:,}, biases and thresholds in the same unit")
        shared = self.shared_threshold or self.quantise is None
        found.append("thresholds: one for each layer" if shared else "thresholds: one for each neuron")
        found.append(
            "biases: none; an always-on neuron in each layer stands for them" if always_on else "biases: one per neuron"
        )
        return found


NO_LIMITS = ChipLimits()
