"""The bill of a decision for people: a table and a picture."""

from typing import Any

from rich.table import Table
from rich.text import Text

from carebn.measure.energy import PAPER_NJ, PRICES, Bill, Item, Operations

UNITS = {"paper": "nJ, paper's\nprices", "45nm": "nJ,\n45 nm"}


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:,.1f}"


def _nanojoule(x: float) -> str:
    """Something is never told as nothing."""
    return f"{x:,.2f}" if x >= 0.095 or x == 0 else f"{x:.2g}"


def _energies(operations: Operations) -> list[str]:
    return [_nanojoule(operations.nanojoule(prices)) for prices in PRICES.values()]


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


Look = dict[str, Any]  # of a dot, as matplotlib has it
SNN_LOOK: Look = {"marker": "o", "color": "tab:green", "markersize": 8}
ANN_LOOK: Look = {"marker": "D", "color": "tab:red", "markersize": 7}
PART_LOOKS: dict[str, Look] = {
    "synapses": {"marker": "o", "color": "tab:blue"},
    "the rest": {"marker": "o", "color": "tab:grey"},
}


def figure(title: str, bill: Bill, ann: Bill | None, env_id: str) -> Any:
    """Energy with each set of prices, and the firing rate of every population."""
    from matplotlib.figure import Figure  # takes half a second: only when wanted

    picture = Figure(figsize=(11, 6.4), layout="constrained")
    picture.suptitle(title, fontsize=11)
    grid = picture.add_gridspec(len(PRICES), 2, width_ratios=(3, 2))
    for i, name in enumerate(PRICES):
        _draw_energies(picture.add_subplot(grid[i, 0]), name, bill, ann, env_id)
    handles = {
        label: dot for axes in picture.axes for dot, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    picture.legend(handles.values(), handles, loc="outside lower left", ncols=3, fontsize=8, frameon=False)
    _draw_rates(picture.add_subplot(grid[:, 1]), bill)
    return picture


def _draw_energies(axes: Any, name: str, bill: Bill, ann: Bill | None, env_id: str) -> None:
    """Dots on a logarithmic axis, where a bar's length would mean nothing: the distance of two is a factor. What is to
    be compared shares a row: the synapses of both networks, and all that both take; below, the parts."""
    prices = PRICES[name]
    own, look = ("ANN", ANN_LOOK) if ann is None else ("SNN", SNN_LOOK)
    ours = [bill.synaptic.nanojoule(prices), bill.all.nanojoule(prices)]
    rows: list[tuple[str, list[tuple[float, str, Look]]]] = []
    theirs = [None, None] if ann is None else [ann.synaptic.nanojoule(prices), ann.all.nanojoule(prices)]
    for what, energy, other in zip(("synapses", "all"), ours, theirs, strict=True):
        if other is None:
            rows.append((what, [(energy, own, look)]))
        else:
            told = _times(energy, other).removesuffix(" than the ANN")
            rows.append((f"{what}: {told}", [(energy, own, look), (other, "ANN counterpart", ANN_LOOK)]))
    if env_id in PAPER_NJ and name == "paper":
        ordinary, spiking = PAPER_NJ[env_id]
        hollow = {"markerfacecolor": "white"}
        paper = [(spiking, "SNN in the paper", SNN_LOOK | hollow), (ordinary, "ANN in the paper", ANN_LOOK | hollow)]
        rows.insert(1, ("paper's synapses", paper))
    for what, items in (("synapses", bill.synapses), ("the rest", bill.overhead)):
        for item in items:
            dot = (item.operations.nanojoule(prices), f"part of {own}: {what}", PART_LOOKS[what])
            rows.append((item.name, [dot]))
    known = [energy for _, dots in rows for energy, *_ in dots if energy > 0]
    lowest, highest = min(known), max(known)
    axes.set_xscale("log")
    axes.set_xlim(lowest / 8, highest * 8)
    for place, (_, dots) in enumerate(rows):
        there = [energy for energy, *_ in dots if energy > 0]
        if len(there) > 1:
            axes.plot(there, [place] * 2, color="lightgrey", zorder=1)
        for energy, label, style in dots:
            if energy > 0:
                axes.plot([energy], [place], linestyle="none", label=label, **style)
            left = len(dots) > 1 and energy == min(other for other, *_ in dots)  # on either side of a pair
            side = {"xytext": (-7, 0), "ha": "right"} if left else {"xytext": (7, 0), "ha": "left"}
            spot = (max(energy, lowest / 2), place)
            axes.annotate(_nanojoule(energy), spot, textcoords="offset points", va="center", fontsize=7, **side)
    axes.set_yticks(range(len(rows)), [row for row, _ in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axhline(len(rows) - len(bill.synapses) - len(bill.overhead) - 0.5, color="grey", linewidth=0.6)
    axes.grid(axis="x", alpha=0.3)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
    axes.set_xlabel(f"nJ per decision, each step tenfold\n({prices.source})", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)


def _draw_rates(axes: Any, bill: Bill) -> None:
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
