"""The bill of a decision for people: a table and a picture."""

from typing import Any

from rich.table import Table
from rich.text import Text

from carebn.measure.energy import PAPER_NJ, PRICES, Bill, Item, Operations

UNITS = {"paper": "nJ, paper's\nprices", "45nm": "nJ,\n45 nm"}


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:,.1f}"


def _energies(operations: Operations) -> list[str]:
    return [f"{operations.nanojoule(prices):,.2f}" for prices in PRICES.values()]


def _row(item: Item) -> list[str]:
    sizes = f"{item.inputs} → {item.outputs}" if item.inputs else ""
    rate = "" if item.sender_rate is None else f"{item.sender_rate:.1%}"
    spikes = "" if item.sender_spikes is None else _number(item.sender_spikes)
    return [item.name, sizes, rate, spikes, *_operations(item.operations), *_energies(item.operations)]


def _operations(operations: Operations) -> list[str]:
    return [_number(x) if x else "" for x in (operations.synaptic, operations.flops)]


def _sum(name: str, operations: Operations) -> list[str]:
    return [name, "", "", "", *_operations(operations), *_energies(operations)]


def _add_bill(table: Table, name: str, bill: Bill) -> None:
    for item in bill.synapses:
        table.add_row(*_row(item))
    table.add_row(*_sum(f"{name}, synapses", bill.synaptic), style="bold", end_section=True)
    for item in bill.overhead:
        table.add_row(*_row(item), style="dim")
    table.add_row(*_sum(f"{name}, all", bill.all), end_section=True)


def table(title: str, bill: Bill, ann: Bill | None, env_id: str) -> Table:
    """``ann``: the ordinary counterpart; None if the network is itself ordinary."""
    result = Table(title=Text(title), title_justify="left")
    result.add_column("per decision", no_wrap=True)
    result.add_column("sizes", justify="right", no_wrap=True)
    active = "firing\nrate" if ann is not None else "active"
    for heading in (active, "spikes", "synaptic\nops", "FLOPs", *(UNITS[name] for name in PRICES)):
        result.add_column(heading, justify="right", no_wrap=True)
    if ann is None:
        _add_bill(result, "ANN", bill)
    else:
        _add_bill(result, "SNN", bill)
        _add_bill(result, "ANN counterpart", ann)
    if env_id in PAPER_NJ:
        ordinary, spiking = PAPER_NJ[env_id]
        result.add_row("paper: SNN, CaRe-BN", "", "", "", "", "", f"{spiking:,.2f}", "")
        result.add_row("paper: ANN", "", "", "", "", "", f"{ordinary:,.2f}", "")
    return result


def verdict(bill: Bill, ann: Bill) -> list[str]:
    """What the comparison comes to, synapses alone and all counted."""
    lines = []
    for name, prices in PRICES.items():
        synapses = _times(bill.synaptic.nanojoule(prices), ann.synaptic.nanojoule(prices))
        everything = _times(bill.all.nanojoule(prices), ann.all.nanojoule(prices))
        lines.append(
            f"{name}: {synapses} in synapses, {everything} with encoder, membranes and decoder ({prices.source})"
        )
    return lines


def _times(energy: float, ann: float) -> str:
    if energy == 0:
        return "nothing spent"  # no neuron fired
    ratio = ann / energy
    return f"{ratio:.1f} times cheaper than the ANN" if ratio >= 1 else f"{1 / ratio:.1f} times dearer than the ANN"


def figure(title: str, bill: Bill, ann: Bill | None, env_id: str) -> Any:
    """Energy by part with each set of prices, on a logarithmic axis, and the firing rate of every population."""
    from matplotlib.figure import Figure  # takes half a second: only when wanted

    picture = Figure(figsize=(11, 6), layout="constrained")
    picture.suptitle(title, fontsize=11)
    grid = picture.add_gridspec(len(PRICES), 2, width_ratios=(3, 2))
    for i, (name, prices) in enumerate(PRICES.items()):
        axes = picture.add_subplot(grid[i, 0])
        bars = [(item.name, item.operations.nanojoule(prices), "tab:blue") for item in bill.synapses]
        bars += [(item.name, item.operations.nanojoule(prices), "tab:grey") for item in bill.overhead]
        own = "ANN" if ann is None else "SNN"
        bars += [(f"{own}, synapses", bill.synaptic.nanojoule(prices), "tab:green")]
        bars += [(f"{own}, all", bill.all.nanojoule(prices), "tab:olive")]
        if ann is not None:
            bars += [("ANN counterpart, synapses", ann.synaptic.nanojoule(prices), "tab:red")]
        if env_id in PAPER_NJ and name == "paper":
            ordinary, spiking = PAPER_NJ[env_id]
            bars += [("paper: SNN, CaRe-BN", spiking, "white"), ("paper: ANN", ordinary, "white")]
        energies = [energy for _, energy, _ in bars]
        places = range(len(bars))
        axes.barh(places, energies, color=[colour for *_, colour in bars], edgecolor="black", linewidth=0.5)
        axes.set_xscale("log")
        positive = [e for e in energies if e > 0]
        axes.set_xlim(min(positive) / 2, max(positive) * 6)
        for place, energy in zip(places, energies, strict=True):
            axes.text(max(energy, min(positive) / 2) * 1.1, place, f"{energy:,.2f}", va="center", fontsize=7)
        axes.set_yticks(list(places), [bar for bar, *_ in bars], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(f"nJ per decision ({prices.source})", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
    axes = picture.add_subplot(grid[:, 1])
    items = [item for item in (*bill.synapses, *bill.overhead) if item.sender_rate is not None]
    senders = list({item.name.split(" → ")[0]: item for item in items}.values())  # each population once
    names = [item.name.split(" → ")[0].replace("output population", "output\npopulation") for item in senders]
    units = [f"{item.inputs} {'neurons' if item.sender_spiking else 'values'}" for item in senders]
    labels = [f"{name}\n{unit}" for name, unit in zip(names, units, strict=True)]
    rates = [100 * (item.sender_rate or 0) for item in senders]
    colours = ["tab:blue" if item.sender_spiking else "tab:purple" for item in senders]
    axes.bar(labels, rates, color=colours)
    for place, rate in enumerate(rates):
        axes.text(place, rate, f"{rate:.1f} %", ha="center", va="bottom", fontsize=8)
    axes.set_ylim(0, max(105.0, 1.1 * max(rates)))
    spiking = any(item.sender_spiking for item in senders)
    what = "neurons and steps with a spike" if spiking else "units other than zero"
    analogue = "" if not spiking or all(i.sender_spiking for i in senders) else " (violet: analogue, other than zero)"
    axes.set_ylabel(f"% of {what}{analogue}", fontsize=8)
    axes.tick_params(labelsize=8)
    return picture
