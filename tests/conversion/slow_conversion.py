"""Conversion in plain Python, one number at a time, from the published rules; shares nothing with the package."""

Matrix = list[list[float]]
Layers = list[tuple[Matrix, list[float]]]  # (weight [out][in], bias [out]) of every hidden layer


def affine(weight: Matrix, bias: list[float], x: list[float]) -> list[float]:
    return [b + sum(w * a for w, a in zip(row, x, strict=True)) for row, b in zip(weight, bias, strict=True)]


def balanced(layers: Layers, batches: list[Matrix], floor: float = 1e-6) -> Matrix:
    """Thresholds by local threshold balancing: [layer][neuron]."""
    thresholds = [[0.0] * len(bias) for _, bias in layers]
    for batch in batches:
        rows = batch
        for k, (weight, bias) in enumerate(layers):
            z = [affine(weight, bias, x) for x in rows]
            for i in range(len(bias)):
                excess = 0.0
                for row in z:
                    if row[i] > thresholds[k][i]:
                        excess += row[i] - thresholds[k][i]
                thresholds[k][i] = max(floor, thresholds[k][i] + 2 * excess / len(z))
            rows = [[min(max(a, 0.0), t) for a, t in zip(row, thresholds[k], strict=True)] for row in z]
    return thresholds


def largest(layers: Layers, batch: Matrix, floor: float = 1e-6) -> Matrix:
    thresholds, rows = [], batch
    for weight, bias in layers:
        rows = [[max(a, 0.0) for a in affine(weight, bias, x)] for x in rows]
        thresholds.append([max(floor, *(row[i] for row in rows)) for i in range(len(bias))])
    return thresholds


class SlowNetwork:
    """Neurons one by one. Spikes weigh θ on the way to the next layer; nothing is folded into weights."""

    def __init__(self, layers: Layers, head: tuple[Matrix, list[float]], thresholds: Matrix) -> None:
        self.layers, self.head, self.thresholds = layers, head, thresholds
        self.carried = [[0.0] * len(row) for row in thresholds]

    def decide(self, x: list[float], steps: int, read_from: int, alpha: float = 0.0) -> list[float]:
        start = [
            [t / 2 + c for t, c in zip(row, kept, strict=True)]
            for row, kept in zip(self.thresholds, self.carried, strict=True)
        ]
        v = [row[:] for row in start]
        self.counts = [[0] * len(row) for row in v]
        read = [0.0] * len(v[-1])
        for t in range(steps):
            signal = x
            for k, (weight, bias) in enumerate(self.layers):
                out = []
                for i, current in enumerate(affine(weight, bias, signal)):
                    v[k][i] += current
                    fires = v[k][i] > self.thresholds[k][i]
                    if fires:
                        v[k][i] -= self.thresholds[k][i]
                        self.counts[k][i] += 1
                    out.append(self.thresholds[k][i] if fires else 0.0)
                signal = out
            if t >= read_from:
                read = [r + s for r, s in zip(read, signal, strict=True)]
        for k, row in enumerate(self.thresholds):
            for i, theta in enumerate(row):
                left = max(v[k][i] - start[k][i], -theta * self.counts[k][i])
                self.carried[k][i] = min(max(alpha * left, -theta / 2), theta / 2)
        self.end = v
        return affine(*self.head, [r / (steps - read_from) for r in read])
