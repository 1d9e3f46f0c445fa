"""Operations: against the paper's table, SpikingJelly's counter, slow loops and numbers worked by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from measured_networks import NETWORKS, SPIKING, make
from torch import nn

from carebn import kernels
from carebn.measure.bill import PAPER_NJ, Bill, Item, ann_bill, as_json
from carebn.measure.energy import Count, counterpart
from carebn.measure.energy_report import figure, table
from carebn.measure.prices import PRICES, Operations
from carebn.measure.spikes import Decision, Population, record
from carebn.network import ANNActor, SpikingActor, SpikingQNetwork
from carebn.neuron import CLIF

# Observation and action sizes of the paper's tasks.
TASKS = {
    "InvertedDoublePendulum-v4": (11, 1),
    "Ant-v4": (27, 8),
    "HalfCheetah-v4": (17, 6),
    "Hopper-v4": (11, 3),
    "Walker2d-v4": (17, 6),
}


def counted(network: nn.Module, *batches: torch.Tensor) -> Count:
    count = Count(network)
    for obs in batches:
        output, populations = record(network, obs)
        count.add(Decision(output.numpy(), output.numpy(), populations))
    return count


# --- the paper's table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", TASKS)
def test_the_papers_ann_row(env_id: str) -> None:
    obs_dim, actions = TASKS[env_id]
    told, _ = PAPER_NJ[env_id]
    network = ANNActor(obs_dim, actions).eval()
    mine = counted(network, torch.randn(3, obs_dim)).bill()
    beside = counterpart(SpikingActor(obs_dim, actions))
    for bill in (mine, beside):
        assert f"{bill.synaptic.nanojoule(PRICES['paper']):.2f}" == f"{told:.2f}"
    weights = sum(m.weight.numel() for m in network.modules() if isinstance(m, nn.Linear))
    assert mine.synaptic == Operations(weights, weights)
    assert mine.synaptic.nanojoule(PRICES["45nm"]) == pytest.approx(weights * 4.6e-3)


def test_the_papers_averages() -> None:
    ordinary, spiking = (np.mean(column) for column in zip(*PAPER_NJ.values(), strict=True))
    assert f"{ordinary:.2f}" == "1775.36"
    assert f"{spiking:.2f}" == "16.48"


def test_the_papers_tasks_have_these_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from carebn.training.environment import make_env, spaces_of

    monkeypatch.chdir(tmp_path)  # where MuJoCo leaves a log file
    for env_id, (obs_dim, actions) in TASKS.items():
        env = make_env(env_id)
        spaces = spaces_of(env, env_id)
        assert (spaces.obs_dim, *spaces.action_shape) == (obs_dim, actions)
        env.close()


# --- SpikingJelly's counter -------------------------------------------------------------------------------------------


def counted_by_spikingjelly(network: nn.Module, obs: torch.Tensor) -> int:
    op_counter = pytest.importorskip("spikingjelly.activation_based.op_counter")
    counter = op_counter.SynOpCounter()
    with torch.no_grad(), op_counter.DispatchCounterMode([counter]):
        network(obs)
    return int(counter.get_total())


class StepByStep(nn.Module):
    """A spiking network's synapses as plain linear layers, each called once per step with the recorded spikes."""

    def __init__(self, network: SpikingActor | SpikingQNetwork) -> None:
        super().__init__()
        self.network = network
        self.linears = [layer.linear for layer in network.layers]
        if isinstance(network, SpikingQNetwork):
            self.linears.append(network.readout)

    def forward(self, obs: torch.Tensor) -> None:
        for linear, values in zip(self.linears, self.spikes, strict=False):
            for spikes in values:
                nn.functional.linear(spikes, linear.weight, linear.bias)

    def given(self, populations: list[Population]) -> "StepByStep":
        self.spikes = [torch.from_numpy(p.values) for p in populations]
        return self


@pytest.mark.parametrize("name", SPIKING)
@pytest.mark.parametrize("seed", [0, 1])
def test_synaptic_operations_equal_spikingjellys(name: str, seed: int) -> None:
    network, obs = make(name, seed), torch.randn(23, 3)
    assert isinstance(network, (SpikingActor, SpikingQNetwork))
    _, populations = record(network, obs)
    theirs = counted_by_spikingjelly(StepByStep(network).given(populations), obs)
    ours = counted(network, obs).bill().synaptic.synaptic * len(obs)
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert theirs > 0


@pytest.mark.parametrize("pure", [False, True])
def test_an_ant_sized_actor_as_it_runs_equals_spikingjellys(pure: bool) -> None:
    """No detour: their counter watches our own forward pass. The decoder sums spikes first, which it does not count."""
    torch.manual_seed(0)
    network, obs = SpikingActor(27, 8).eval(), torch.randn(40, 27)
    if pure:
        with kernels.pure():
            theirs, count = counted_by_spikingjelly(network, obs), counted(network, obs)
    else:
        theirs, count = counted_by_spikingjelly(network, obs), counted(network, obs)
    assert count.bill().synaptic.synaptic * len(obs) == pytest.approx(theirs, abs=1e-6)


# --- slow loops and hand-worked numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPIKING)
def test_spike_by_spike(name: str) -> None:
    """Every spike walks along every one of its synapses; batches of different sizes are one mean over decisions."""
    network, batches = make(name), (torch.randn(3, 3), torch.randn(8, 3))
    assert isinstance(network, (SpikingActor, SpikingQNetwork))
    bill = counted(network, *batches).bill()
    linears = [layer.linear for layer in network.layers]
    if isinstance(network, SpikingQNetwork):
        linears.append(network.readout)
    walked = [0] * len(linears)
    for obs in batches:
        for i, (population, linear) in enumerate(zip(record(network, obs)[1], linears, strict=False)):
            if population.spiking:
                for neuron in np.argwhere(population.values)[:, 2]:
                    walked[i] += linear.weight[:, neuron].numel()
    for item, number, linear in zip(bill.synapses, walked, linears, strict=True):
        assert item.operations.synaptic * 11 == pytest.approx(number)
        assert item.operations.multiplications == (0 if item.sender_spiking else linear.weight.numel())
        assert (item.inputs, item.outputs) == (linear.in_features, linear.out_features)


def by_hand() -> tuple[SpikingActor, Bill]:
    """Two decisions of a 2 → (2·3) → 4 → (1·3) actor, T = 2, with spikes written down."""
    network = SpikingActor(2, 1, hidden=(4,), population=3, time_steps=2, neuron="lif", norm="care")
    spikes = [np.zeros((2, 2, n), np.float32) for n in (6, 4, 3)]
    spikes[0][0, 0, :5] = 1  # five spikes, and then one in the other decision
    spikes[0][1, 1, 0] = 1
    spikes[1][:, :, 2] = 1  # one neuron fires always: four spikes
    spikes[2][1, 0, :] = 1  # three spikes
    names = ("encoder", "layer 1", "output population")
    count = Count(network)
    action = np.zeros((2, 1), np.float32)
    count.add(Decision(action, action, [Population(n, s, True) for n, s in zip(names, spikes, strict=True)]))
    return network, count.bill()


def test_hand_worked_numbers() -> None:
    _, bill = by_hand()
    assert [item.name for item in bill.synapses] == ["encoder → layer 1", "layer 1 → output population"]
    first, second = bill.synapses
    assert first.operations == Operations(synaptic=6 * 4 / 2)
    assert second.operations == Operations(synaptic=4 * 3 / 2)
    assert (first.sender_rate, second.sender_rate) == (6 / 24, 4 / 16)
    assert (first.sender_spikes, second.sender_spikes) == (3.0, 2.0)
    encoder, membranes, decoder = bill.overhead
    # 2 tanh; 6 fields of 4 multiplications and a subtraction; 2 steps of 6 neurons, 2 additions each
    assert encoder.operations == Operations(2 + 24, 6 + 24)
    # 2 steps of 4 + 3 neurons: λV + C, and the bias
    assert membranes.operations == Operations(14, 28)
    # tanh, reach · tanh; bias, + middle; 3 spikes in 2 decisions
    assert decoder.operations == Operations(2, 2, 1.5)
    assert decoder.sender_rate == 3 / 12
    assert bill.synaptic.synaptic == 18
    assert bill.all == Operations(26 + 14 + 2, 30 + 28 + 2, 19.5)
    assert bill.synaptic.nanojoule(PRICES["paper"]) == pytest.approx(18 * 77e-6)
    assert bill.all.nanojoule(PRICES["paper"]) == pytest.approx((102 * 12.5 + 19.5 * 0.077) / 1000)
    assert bill.all.nanojoule(PRICES["45nm"]) == pytest.approx((42 * 3.7 + 60 * 0.9 + 19.5 * 0.9) / 1000)


@pytest.mark.parametrize(
    ("neuron", "norm", "multiplications", "additions"),
    [("lif", "care", 1, 2), ("clif", "none", 2, 3), ("clif", "bntt", 3, 3), ("lif", "tebn", 2, 2),
     ("dn", "tdbn", 4, 6), ("dn", "tab", 5, 6), ("dn-authors", "bn", 4, 6)],
)  # fmt: skip
def test_membranes(neuron: str, norm: str, multiplications: int, additions: int) -> None:
    network = SpikingActor(3, 2, hidden=(8,), norm=norm, neuron=neuron, time_steps=4).eval()
    (membranes,) = [i for i in counted(network, torch.randn(2, 3)).bill().overhead if i.name == "membranes"]
    places = 4 * (8 + 20)
    assert membranes.operations == Operations(multiplications * places, additions * places)


class Louder(CLIF):
    def step(self, current: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        return super().step(2 * current + torch.tanh(state.v), state)


class Unheard(CLIF):
    def step(self, current: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        return super().step(torch.erf(current), state)


def test_a_neuron_with_a_step_of_its_own_costs_what_its_step_computes() -> None:
    """Those of a CLIF, 2 and 2; the factor, tanh, the addition; and the bias."""
    network = SpikingActor(3, 2, hidden=(8,), neuron=Louder(), time_steps=4).eval()
    (membranes,) = [i for i in counted(network, torch.randn(2, 3)).bill().overhead if i.name == "membranes"]
    assert membranes.operations == Operations(4 * 4 * 28, 4 * 4 * 28)


def test_a_neuron_whose_step_cannot_be_followed_has_no_known_cost() -> None:
    network = SpikingActor(3, 2, hidden=(8,), neuron=Unheard()).eval()
    with pytest.raises(ValueError, match=r"the cost of a Unheard neuron is not known: .* it uses erf; a step may use"):
        counted(network, torch.randn(2, 3)).bill()


@pytest.mark.parametrize(
    ("mode", "fan_out"),
    [("intra", 10), ("no-bias", 10), ("no-self", 9), ("no-lateral", 1), ("self", 1), ("lateral", 9), ("bias", 0)],
)
def test_connections_inside_a_layer_are_synapses(mode: str, fan_out: int) -> None:
    """Each spike walks, one step later, to every neuron that its weights reach; after the last step there is none."""
    torch.manual_seed(0)
    network, obs = SpikingActor(3, 2, hidden=(12,), intralayer=mode, time_steps=4).eval(), torch.randn(30, 3)
    bill = counted(network, obs).bill()
    rates = figure("title", bill, counterpart(network), "").axes[-1]
    assert len(rates.patches) == 3  # each population once
    *others, within = bill.synapses
    assert [item.name for item in others] == ["encoder → layer 1", "layer 1 → output population"]
    assert (within.name, within.inputs, within.outputs) == ("output population → itself", 20, 20)
    spikes = torch.from_numpy(record(network, obs)[1][-1].values)
    connections, walked = network.layers[-1].connections, 0
    for step in spikes[:-1]:
        for neuron in torch.argwhere(step)[:, 1].tolist():
            alone = torch.zeros(1, 20)
            alone[0, neuron] = 1
            walked += int((connections(alone) != connections(torch.zeros(1, 20))).sum())
    assert walked == fan_out * int(spikes[:-1].sum())
    assert spikes[:-1].sum() > 0
    assert within.operations == Operations(synaptic=walked / 30)
    assert within.sender_spikes == pytest.approx(float(spikes[:-1].sum()) / 30)
    assert within.sender_rate == pytest.approx(float(spikes[:-1].mean()))


def test_connections_inside_a_layer_need_a_second_step() -> None:
    network = SpikingActor(3, 2, hidden=(12,), intralayer="intra", time_steps=1).eval()
    within = counted(network, torch.randn(30, 3)).bill().synapses[-1]
    assert (within.operations, within.sender_rate) == (Operations(), 0.0)


@pytest.mark.parametrize(
    ("readout", "additions"), [("membrane", 1), ("rate", 1), ("max-membrane", 4), ("mean-membrane", 8)]
)
def test_read_outs(readout: str, additions: int) -> None:
    """V_t = V_{t−1} + w·S_t + b: one bias in all where only the end counts; each, and their sum, where all do."""
    network = SpikingActor(3, 2, hidden=(8,), time_steps=4, readout=readout).eval()
    decoder = counted(network, torch.randn(5, 3)).bill().overhead[-1]
    assert decoder.operations[:2] == (2 * 2, (additions + 1) * 2)


@pytest.mark.parametrize(("observation", "each"), [("tanh", (1, 0)), ("zscore", (1, 1)), ("raw", (0, 0))])
def test_what_becomes_of_an_observation(observation: str, each: tuple[int, int]) -> None:
    network = SpikingActor(3, 2, hidden=(8,), encoder_options={"observation": observation, "coding": "analogue"}).eval()
    encoder = counted(network, torch.randn(5, 3)).bill().overhead[0]
    assert encoder.operations[:2] == (3 * each[0] + 4 * 30, 3 * each[1] + 30)


def test_a_q_network_on_analogue_input() -> None:
    network = make("q")
    bill = counted(network, torch.randn(5, 3)).bill()
    assert [item.name for item in bill.synapses] == ["input → layer 1", "layer 1 → layer 2", "layer 2 → Q"]
    assert bill.synapses[0].operations == Operations(36, 36)  # once, not at every step
    assert bill.synapses[0].sender_spikes is None
    assert [item.name for item in bill.overhead] == ["membranes", "read-out biases"]
    assert counterpart(network).synaptic == Operations(3 * 12 + 12 * 9 + 9 * 4, 3 * 12 + 12 * 9 + 9 * 4)


def test_ordinary_overhead() -> None:
    assert ann_bill(3, (5, 4), 2, squashed=True).overhead[0].operations == Operations(4, 5 + 4 + 2 + 2)
    assert ann_bill(3, (5, 4), 2, squashed=False).overhead[0].operations == Operations(0, 11)


def test_nothing_counted() -> None:
    with pytest.raises(ValueError, match="no decision was counted"):
        Count(make("ann")).bill()
    with pytest.raises(ValueError, match="not a spiking network"):
        counterpart(make("ann"))


# --- for people -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_table_figure_and_json_of_every_network(name: str) -> None:
    from rich.console import Console

    network = make(name)
    bill = counted(network, torch.randn(5, 3)).bill()
    ann = counterpart(network) if name in SPIKING else None
    console = Console(width=160)
    with console.capture() as capture:
        console.print(table("title", bill, ann, "Hopper-v4"))
    text = capture.get()
    for item in (*bill.synapses, *bill.overhead):
        assert item.name in text
    assert "16.59" in text
    assert "1,728.00" in text
    data = as_json(bill)
    assert data["total"]["nanojoule"]["paper"] == pytest.approx(
        sum(i["nanojoule"]["paper"] for i in (*data["synapses"], *data["overhead"]))
    )
    assert len(figure("title", bill, ann, "Hopper-v4").axes) == 3


def test_the_picture_compares_by_dots_and_total_with_total() -> None:
    """On a logarithmic axis a bar's length means nothing; and the ANN has a total as well as synapses."""
    torch.manual_seed(0)
    network = SpikingActor(11, 3, hidden=(32,)).eval()
    bill, ann = counted(network, torch.randn(30, 11)).bill(), counterpart(network)
    picture = figure("title", bill, ann, "Hopper-v4")
    for axes, prices in zip(picture.axes, PRICES.values(), strict=False):
        assert axes.get_xscale() == "log"
        assert not axes.patches
        names = [label.get_text() for label in axes.get_yticklabels()]
        dots = {(line.get_label(), line.get_ydata()[0]): line.get_xdata()[0] for line in axes.lines}
        dots = {name: x for name, x in dots.items() if not name[0].startswith("_")}  # not what joins or parts them
        both = next(i for i, name in enumerate(names) if name.startswith("all: "))
        assert names[0].startswith("synapses: ")
        for place, ours, theirs in ((0, bill.synaptic, ann.synaptic), (both, bill.all, ann.all)):
            assert dots["SNN", place] == pytest.approx(ours.nanojoule(prices))
            assert dots["ANN counterpart", place] == pytest.approx(theirs.nanojoule(prices))
        low, high = axes.get_xlim()
        assert all(low < x < high for x in dots.values())
    first = {line.get_label() for line in picture.axes[0].lines}
    assert {"SNN in the paper", "ANN in the paper"} <= first
    silent = Bill([replace(item, operations=Operations()) for item in bill.synapses], bill.overhead)
    told = [text.get_text() for text in figure("title", silent, ann, "").axes[0].texts]
    assert "0.00" in told  # nothing has no place on such an axis, but is told


def test_something_is_never_told_as_nothing() -> None:
    bill = Bill([Item("a → b", Operations(synaptic=30.0))], [])  # 0.00231 nJ by the paper's prices
    cells = [cell for column in table("title", bill, None, "").columns for cell in column._cells]
    assert "0.0023" in cells
    assert "0.00" not in cells
