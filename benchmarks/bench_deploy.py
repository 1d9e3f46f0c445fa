"""One action of the Ant-sized spiking actor: the deployed policy, compiled and with numpy alone, beside torch.

    python benchmarks/bench_deploy.py [--out results/bench_deploy.json]

Each engine is asked for one action at a time; what is printed is the median and the fastest of all of them. The import
of the runtime is timed in fresh processes.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for library in ("OMP", "MKL", "OPENBLAS", "NUMBA"):  # read when a library is loaded, so before that
    os.environ[f"{library}_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402

from carebn.deploy import DeployedPolicy  # noqa: E402
from carebn.deploy.folding import fold  # noqa: E402
from carebn.network import SpikingActor  # noqa: E402
from carebn.network.inference import FastActor  # noqa: E402

OBS, ACTIONS, ROUNDS = 27, 8, 3000


def actor() -> SpikingActor:
    """With CaRe-BN statistics of random observations, so that its neurons fire as in a network that learns."""
    torch.manual_seed(0)
    network = SpikingActor(OBS, ACTIONS, norm="care", neuron="clif")
    for _ in range(30):
        network(torch.randn(256, OBS))
    return network.eval().requires_grad_(False)


def timed(act: Callable[[Any], Any], observations: list[Any], rounds: int) -> dict[str, float]:
    for obs in observations[:50]:
        act(obs)
    times = []
    for i in range(rounds):
        obs = observations[i % len(observations)]
        start = time.perf_counter()
        act(obs)
        times.append(time.perf_counter() - start)
    return {"median_ms": 1e3 * statistics.median(times), "fastest_ms": 1e3 * min(times)}


def import_seconds() -> float:
    """The fastest of five fresh processes; numpy is part of it."""
    code = "import time; t = time.perf_counter(); import carebn.deploy; print(time.perf_counter() - t)"
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="also write the figures as JSON")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    network = actor()
    folded = fold(network)
    rows = np.random.default_rng(0).standard_normal((500, OBS)).astype(np.float32)
    single, batches = list(rows), [row[None] for row in rows]
    tensors = [torch.from_numpy(row) for row in batches]
    rates = [float(spikes.mean()) for spikes in DeployedPolicy(folded, compiled=False).trace(rows).spikes]
    figures = {
        "runtime with numba": timed(DeployedPolicy(folded, compiled=True).predict, single, ROUNDS),
        "runtime, numpy alone": timed(DeployedPolicy(folded, compiled=False).predict, single, ROUNDS),
        "acting in training (FastActor)": timed(FastActor(network), batches, ROUNDS),
        "torch, eval forward": timed(network, tensors, ROUNDS // 3),
    }
    print(f"one action, {OBS} → 270 → 256 → 256 → 80, T = 5; firing rates {', '.join(f'{r:.0%}' for r in rates)}")
    print(f"{'':32} {'median ms':>10} {'fastest ms':>11}")
    for name, figure in figures.items():
        print(f"{name:32} {figure['median_ms']:10.4f} {figure['fastest_ms']:11.4f}")
    seconds = import_seconds()
    print(f"import carebn.deploy: {seconds:.3f} s, of which numpy is most")
    if out is not None:
        machine = {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
        out.write_text(
            json.dumps({"figures": figures, "rates": rates, "import_s": seconds, **machine}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
