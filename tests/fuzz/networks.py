"""The network and the observations that a case describes. The same case builds the same, again and again."""

import random
from typing import Any

import torch
from torch import Tensor, nn

from carebn.network import PopulationEncoder, SpikingActor, SpikingLayer, SpikingQNetwork
from carebn.neuron import SURROGATES, Neuron, make_neuron
from carebn.norm import make_norm

from .cases import Case
from .oddities import Workshop, apply_oddity

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Holder(nn.Module):
    """One module by itself, under the name that it has in a network."""

    def __init__(self, name: str, module: nn.Module) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, module)

    def forward(self, x: Tensor) -> Any:
        return self.get_submodule(self.name)(x)


def neuron_of(case: Case) -> Neuron:
    if case.neuron == "dn-authors":
        options = {k: v for k, v in case.neuron_options.items() if k == "v_threshold"}
    else:
        options = case.neuron_options
    surrogate: Any = SURROGATES[case.surrogate]
    return make_neuron(
        case.neuron, surrogate=surrogate(case.surrogate_size) if case.surrogate_size else surrogate(), **options
    )


def _bare(case: Case) -> nn.Module:
    options = dict(case.norm_options)
    encoder = {"coding": case.coding, "observation": case.observation, "reset": case.reset}
    common: dict[str, Any] = {"norm": case.norm, "neuron": neuron_of(case), "norm_options": options}
    if case.kind == "actor":
        return SpikingActor(
            case.obs,
            case.actions,
            hidden=case.hidden,
            time_steps=case.steps,
            population=case.population,
            readout=case.readout,
            intralayer=case.intralayer,
            encoder_options=encoder,
            low=-2.0,
            high=1.5,
            **common,
        )
    if case.kind == "qnet":
        return SpikingQNetwork(
            case.obs, case.actions, hidden=case.hidden, time_steps=case.steps, readout=case.readout, **common
        )
    if case.kind == "layer":
        return SpikingLayer(case.obs, case.hidden[0], time_steps=case.steps, **common)
    if case.kind == "neuron":
        return Holder("neuron", common["neuron"])
    if case.kind == "norm":
        return Holder("norm", make_norm(case.norm, case.hidden[0], case.steps, **options))
    return Holder("encoder", PopulationEncoder(case.obs, case.population, case.steps, **encoder))


def spiking_layers(network: nn.Module) -> list[SpikingLayer]:
    return [module for module in network.modules() if isinstance(module, SpikingLayer)]


def _random(shape: Any, generator: torch.Generator, mean: float, std: float) -> Tensor:
    return mean + std * torch.randn(*shape, generator=generator)


@torch.no_grad()
def _fill(network: nn.Module, case: Case, generator: torch.Generator) -> None:
    """Every number away from its start, so that neurons fire and no gradient is zero by symmetry."""
    for name, parameter in network.named_parameters():
        leaf = name.rpartition(".")[2]
        if name.endswith("linear.weight") or name == "readout.weight":
            size = 2.0 / max(1.0, 0.4 * parameter.shape[1]) ** 0.5
            parameter.copy_(_random(parameter.shape, generator, 0.0, size))
        elif name.endswith("linear.bias") or name == "readout.bias":
            parameter.copy_(_random(parameter.shape, generator, 0.25, 0.5))
        elif "norm." in name:
            parameter.add_(_random(parameter.shape, generator, 0.0, 0.25))
        elif leaf in ("weight", "bias", "mean"):
            parameter.add_(_random(parameter.shape, generator, 0.0, 0.2))
        elif leaf == "std":
            parameter.copy_(_random(parameter.shape, generator, 0.0, 0.3).abs() + 0.15)
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(_random(buffer.shape, generator, 0.3, 0.5))
        elif name.endswith(("running_var", "error_mean", "error_var")):
            buffer.copy_(_random(buffer.shape, generator, 0.0, 0.6).abs() + 0.1)
        elif name.endswith("num_batches_tracked"):
            buffer.fill_(3)
    for layer in spiking_layers(network):
        if case.distinct_neurons:
            _repeat_neurons(layer, case.distinct_neurons, generator)
    for parameter in network.parameters():
        parameter.copy_((parameter * 2**case.grid).round() / 2**case.grid)
    for name, parameter in network.named_parameters():
        if name.endswith("encoder.std"):
            parameter.clamp_(min=2.0**-case.grid)  # a width of zero is an oddity of its own


def _repeat_neurons(layer: SpikingLayer, distinct: int, generator: torch.Generator) -> None:
    """Only so many different neurons, in a random order: many places to go wrong, few decisions near a threshold."""
    features = layer.linear.out_features
    if distinct >= features:
        return
    like = torch.cat([torch.arange(distinct), torch.randint(0, distinct, (features - distinct,), generator=generator)])
    like = like[torch.randperm(features, generator=generator)]
    layer.linear.weight.copy_(layer.linear.weight[like])
    if layer.linear.bias is not None:
        layer.linear.bias.copy_(layer.linear.bias[like])
    for tensor in (*layer.norm.parameters(), *layer.norm.buffers()):
        if tensor.ndim and tensor.shape[-1] == features:
            tensor.copy_(tensor[..., like])


def _drop_biases(network: nn.Module, which: str) -> None:
    for i, layer in enumerate(spiking_layers(network)):
        if which == "none" or (which == "some" and i % 2 == 0):
            layer.linear.bias = None


def _set_modes(network: nn.Module, case: Case) -> None:
    network.train(case.mode != "eval")
    if case.mode == "mixed":
        for i, layer in enumerate(spiking_layers(network)):
            layer.norm.train(i % 2 == 1)


def _freeze(network: nn.Module, parts: tuple[str, ...]) -> None:
    for name, parameter in network.named_parameters():
        if any(part == "everything" or part in name for part in parts):
            parameter.requires_grad_(False)


def build(case: Case, attempt: int = 0) -> tuple[nn.Module, Workshop]:
    """The network, and the workshop that knows what was done to it. Close the workshop afterwards."""
    seed = case.seed * 1000 + attempt
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    network = _bare(case)
    _fill(network, case, generator)
    _drop_biases(network, case.bias)
    if case.uneven:
        for i, layer in enumerate(spiking_layers(network)):
            layer.neuron.v_threshold *= 1 + 0.25 * i
            if hasattr(layer.neuron, "decay"):
                layer.neuron.decay *= 0.75**i
    network.to(DTYPES[case.dtype])
    _set_modes(network, case)
    workshop = Workshop(random.Random(f"{case.seed}/oddities"))
    _freeze(network, case.frozen)
    for name in case.oddities:
        apply_oddity(name, network, workshop)
    return network, workshop


def observations(case: Case, attempt: int, number: int) -> Tensor:
    """What the network is given in its ``number``-th call, as plain float32 or float64 numbers."""
    generator = torch.Generator().manual_seed(case.seed * 1000 + attempt + 500 + 7 * number)
    if case.kind in ("actor", "qnet", "encoder"):
        shape: tuple[int, ...] = (case.batch, case.obs)
    elif case.kind == "layer":
        shape = (case.steps if case.seed % 3 else 1, case.batch, case.obs)
    else:
        shape = (case.steps, case.batch, case.hidden[0] if case.hidden else 3)
    x = case.obs_scale * torch.randn(*shape, generator=generator)
    if case.kind == "layer" and case.seed % 2 and shape[0] > 1:
        x = (x > 0.3 * case.obs_scale).float()  # spikes, as a layer behind another one gets them
    if case.distinct_rows:
        like = torch.randint(0, case.distinct_rows, (case.batch,), generator=generator)
        like[: case.distinct_rows] = torch.arange(case.distinct_rows)[: case.batch]
        x = x.index_select(-2, like)
    return ((x * 2**case.grid).round() / 2**case.grid).to(DTYPES[case.dtype])


def laid_out(x: Tensor, layout: str) -> Tensor:
    if layout == "strided":
        return torch.stack([x, x + 1], -1)[..., 0]
    if layout == "transposed":
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "double":
        return x.double()
    return x
