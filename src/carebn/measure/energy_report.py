"""The bill of a decision for people: a table and a picture."""

from typing import Any

from rich.table import Table
from rich.text import Text

from carebn.measure.bill import PAPER_NJ, Bill, Item
from carebn.measure.crossing import QUANTISED, Comparison, Comparisons
from carebn.measure.prices import MEMORY, PRICES, Lists, Operations, Prices, total

UNITS = {"paper": "nJ, paper's\nprices", "45nm": "nJ,\n45 nm", MEMORY: "nJ, with\nmemory"}
TITLES = {"paper": "paper's prices", "45nm": "45 nm", MEMORY: "with memory"}


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:,.1f}"


def _nanojoule(x: float) -> str:
    """Something is never told as nothing."""
    return f"{x:,.2f}" if x >= 0.095 or x == 0 else f"{x:.2g}"


def _energies(items: list[Item], lists: Lists) -> list[str]:
    return [_nanojoule(sum(item.nanojoule(prices) for item in items)) for prices in lists.values()]


def _row(item: Item, lists: Lists) -> list[str]:
    sizes = f"{item.inputs} → {item.outputs}" if item.inputs else ""
    rate = "" if item.sender_rate is None else f"{item.sender_rate:.1%}"
    spikes = "" if item.sender_spikes is None else _number(item.sender_spikes)
    return [item.name, sizes, rate, spikes, *_operations(item.operations), *_energies([item], lists)]


def _operations(operations: Operations) -> list[str]:
    return [_number(x) if x else "" for x in (operations.synaptic, operations.flops)]


def _sum(name: str, items: list[Item], lists: Lists) -> list[str]:
    operations = total([item.operations for item in items])
    return [name, "", "", "", *_operations(operations), *_energies(items, lists)]


def _add_bill(table: Table, name: str, bill: Bill, lists: Lists) -> None:
    for item in bill.synapses:
        table.add_row(*_row(item, lists))
    table.add_row(*_sum(f"{name}, synapses", bill.synapses, lists), style="bold", end_section=True)
    for item in bill.overhead:
        table.add_row(*_row(item, lists), style="dim")
    table.add_row(*_sum(f"{name}, all", [*bill.synapses, *bill.overhead], lists), end_section=True)


def table(title: str, bill: Bill, ann: Bill | None, env_id: str, compared: Comparisons | None = None) -> Table:
    """``ann``: the ordinary counterpart; None if the network is itself ordinary. ``compared``: with that counterpart,
    for a column with memory and a row of the counterpart quantised."""
    own, other = (PRICES, PRICES) if compared is None else (compared.spiking, compared.ann)
    result = Table(title=Text(title), title_justify="left")
    result.add_column("per decision", no_wrap=True)
    result.add_column("sizes", justify="right", no_wrap=True)
    active = "firing\nrate" if ann is not None else "active"
    for heading in (active, "spikes", "synaptic\nops", "FLOPs", *(UNITS[name] for name in own)):
        result.add_column(heading, justify="right", no_wrap=True)
    if ann is None:
        _add_bill(result, "ANN", bill, own)
    else:
        _add_bill(result, "SNN", bill, own)
        _add_bill(result, "ANN counterpart", ann, other)
    empty = [""] * (len(own) - 1)
    if ann is not None and compared is not None:
        weight, activation = compared.bits
        cells = _energies([*ann.synapses, *ann.overhead], compared.quantised)
        name = f"ANN quantised to {weight} and {activation} bits"
        result.add_row(name, "", "", "", *_operations(ann.all), *empty, *cells, end_section=True)
    if env_id in PAPER_NJ:
        ordinary, spiking = PAPER_NJ[env_id]
        result.add_row("paper: SNN, CaRe-BN", "", "", "", "", "", f"{spiking:,.2f}", *empty)
        result.add_row("paper: ANN", "", "", "", "", "", f"{ordinary:,.2f}", *empty)
    return result


def verdict(bill: Bill, ann: Bill, compared: Comparisons) -> list[str]:
    """A line for each list of prices: what a decision costs, who is cheaper, and at which firing rate that changes."""
    lines = []
    for name in dict.fromkeys(row.prices for row in compared.rows):
        rows = [row for row in compared.rows if row.prices == name]
        own, theirs = compared.spiking[name], compared.ann[name]
        parts = [f"{_nanojoule(rows[0].spiking)} nJ with encoder, membranes and decoder", _spikes(rows[0])]
        for row in rows:
            source = compared.quantised[MEMORY].source if row.other == QUANTISED else theirs.source
            told = _times(row.spiking, row.ordinary).replace("the ANN", f"the {row.other}")
            at = f" ({source})" if source != own.source else ""
            parts.append(f"{told}, which takes {_nanojoule(row.ordinary)} nJ{at}{_where(row)}")
        synapses = [each.nanojoule(prices, synapses_only=True) for each, prices in ((bill, own), (ann, theirs))]
        parts.append(f"{_times(*synapses)} in synapses alone")
        lines.append(f"{TITLES[name]} ({own.source}): {'; '.join(parts)}")
    return lines


def _spikes(row: Comparison) -> str:
    if row.own_rate is None:
        return "no spike costs anything"
    return f"its spikes cost as much as a uniform firing rate of {100 * row.own_rate:.1f} %"


def _where(row: Comparison) -> str:
    if row.crossing is None:
        return ""
    if row.crossing <= 0:
        return ", and spikes would not pay even if there were none"
    if row.crossing >= 1:
        return ", and spikes would pay even if every neuron fired always"
    return f", and spikes pay below {100 * row.crossing:.1f} %"


def _times(energy: float, ann: float) -> str:
    if energy == 0:
        return "nothing spent"  # no neuron fired
    ratio = ann / energy
    return f"{ratio:.1f} times cheaper than the ANN" if ratio >= 1 else f"{1 / ratio:.1f} times dearer than the ANN"


Look = dict[str, Any]  # of a dot, as matplotlib has it
SNN_LOOK: Look = {"marker": "o", "color": "tab:green", "markersize": 8}
ANN_LOOK: Look = {"marker": "D", "color": "tab:red", "markersize": 7}
QUANTISED_LOOK: Look = {"marker": "D", "color": "tab:orange", "markersize": 7}
LEAST_RATE = 0.1  # per cent: where the axis of firing rates begins
PART_LOOKS: dict[str, Look] = {
    "synapses": {"marker": "o", "color": "tab:blue"},
    "the rest": {"marker": "o", "color": "tab:grey"},
}


def figure(title: str, bill: Bill, ann: Bill | None, env_id: str, compared: Comparisons | None = None) -> Any:
    """Whether spikes pay, energy with each set of prices, and the firing rate of every population."""
    from matplotlib.figure import Figure  # takes half a second: only when wanted

    own: Lists = PRICES if compared is None else compared.spiking
    above = 0 if compared is None else 1
    picture = Figure(figsize=(11, 6.4 if compared is None else 10.5), layout="constrained")
    picture.suptitle(title, fontsize=11)
    heights = (*[1.0] * above, *[1.5 if above else 1.0] * len(own))
    grid = picture.add_gridspec(len(heights), 2, width_ratios=(3, 2), height_ratios=heights)
    if compared is not None:
        _draw_whether(picture.add_subplot(grid[0, :]), compared)
    for i, name in enumerate(own):
        _draw_energies(picture.add_subplot(grid[i + above, 0]), name, bill, ann, env_id, compared)
    handles = {
        label: dot for axes in picture.axes for dot, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    picture.legend(handles.values(), handles, loc="outside lower left", ncols=3, fontsize=8, frameon=False)
    _draw_rates(picture.add_subplot(grid[above:, 1]), bill)
    return picture


def _draw_whether(axes: Any, compared: Comparisons) -> None:
    """A row for each comparison: green up to the firing rate at which both cost alike, red beyond; a dot where the
    network is. On green it pays."""
    for place, row in enumerate(compared.rows):
        crossing = 100 * (1.0 if row.crossing is None else min(max(row.crossing, 0.0), 1.0))
        edge = min(max(crossing, LEAST_RATE), 100.0)
        axes.barh(place, edge - LEAST_RATE, left=LEAST_RATE, height=0.6, color="tab:green", alpha=0.45)
        axes.barh(place, 100 - edge, left=edge, height=0.6, color="tab:red", alpha=0.45)
        if row.own_rate is not None:
            axes.plot([max(100 * row.own_rate, LEAST_RATE)], [place], "o", color="black", markersize=8, zorder=3)
        told = _times(row.spiking, row.ordinary).removesuffix(" than the ANN")
        where = "" if row.crossing is None or not 0 < row.crossing < 1 else f"; pays below {row.crossing:.1%}"
        spot: dict[str, Any] = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        axes.annotate(f"{told}{where}", (LEAST_RATE, place), **spot)
    names = [f"{TITLES[row.prices]}, {row.other}" for row in compared.rows]
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(LEAST_RATE, 100)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g} %")
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("firing rate in every population: on green spikes are cheaper; the dot is this policy", fontsize=8)
    number = sum(row.pays for row in compared.rows)
    axes.set_title(f"Do spikes pay? In {number} of {len(names)} comparisons, everything counted", fontsize=11)


def _draw_energies(
    axes: Any, name: str, bill: Bill, ann: Bill | None, env_id: str, compared: Comparisons | None = None
) -> None:
    """Dots on a logarithmic axis, where a bar's length would mean nothing: the distance of two is a factor. What is to
    be compared shares a row: the synapses of both networks, and all that both take; below, the parts."""
    lists, others = (PRICES, PRICES) if compared is None else (compared.spiking, compared.ann)
    prices = lists[name]
    own, look = ("ANN", ANN_LOOK) if ann is None else ("SNN", SNN_LOOK)
    ours = _two(bill, prices)
    rows: list[tuple[str, list[tuple[float, str, Look]]]] = []
    theirs = [None, None] if ann is None else _two(ann, others[name])
    quantised = None if ann is None or compared is None else compared.quantised.get(name)
    for what, energy, other in zip(("synapses", "all"), ours, theirs, strict=True):
        if other is None:
            rows.append((what, [(energy, own, look)]))
        else:
            told = _times(energy, other).removesuffix(" than the ANN")
            rows.append((f"{what}: {told}", [(energy, own, look), (other, "ANN counterpart", ANN_LOOK)]))
    if ann is not None and quantised is not None:
        dots = [(energy, own, look), (ann.nanojoule(quantised), "ANN quantised", QUANTISED_LOOK)]
        rows.append((f"all: {_times(dots[0][0], dots[1][0]).removesuffix(' than the ANN')}", dots))
    if env_id in PAPER_NJ and name == "paper":
        ordinary, spiking = PAPER_NJ[env_id]
        hollow = {"markerfacecolor": "white"}
        paper = [(spiking, "SNN in the paper", SNN_LOOK | hollow), (ordinary, "ANN in the paper", ANN_LOOK | hollow)]
        rows.insert(1, ("paper's synapses", paper))
    for what, items in (("synapses", bill.synapses), ("the rest", bill.overhead)):
        for item in items:
            dot = (item.nanojoule(prices), f"part of {own}: {what}", PART_LOOKS[what])
            rows.append((item.name, [dot]))
    sources = {own: prices.source}
    if ann is not None:
        sources["ANN counterpart"] = others[name].source
    if quantised is not None:
        sources["ANN quantised"] = quantised.source
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
    axes.set_xlabel("\n".join(["nJ per decision, logarithmic", *_priced_by(sources)]), fontsize=8)
    axes.tick_params(axis="x", labelsize=8)


def _priced_by(sources: dict[str, str]) -> list[str]:
    """A line for all, or for each of them where they differ."""
    if len(set(sources.values())) == 1:
        return [f"({next(iter(sources.values()))})"]
    return [f"{name}: {source}" for name, source in sources.items()]


def _two(bill: Bill, prices: Prices) -> list[float]:
    return [bill.nanojoule(prices, synapses_only=True), bill.nanojoule(prices)]


def _draw_rates(axes: Any, bill: Bill) -> None:
    items = [item for item in (*bill.synapses, *bill.overhead) if item.sender_rate is not None]
    senders = list({item.name.split(" → ")[0]: item for item in items}.values())  # each population once
    names = [item.name.split(" → ")[0].replace("output population", "output\npopulation") for item in senders]
    units = [f"{item.inputs} {'neurons' if item.sender_spiking else 'values'}" for item in senders]
    labels = [f"{name}\n{unit}".replace(" neurons", "\nneurons") for name, unit in zip(names, units, strict=True)]
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
