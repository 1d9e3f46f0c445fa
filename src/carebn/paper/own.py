"""Studies of this package's own, in the form of the paper's: the paper has none of their numbers."""

from carebn.paper.facts import IDP
from carebn.paper.records import Row, Study, Variant

TARGETS = (0.2, 0.1, 0.05)  # share of the hidden neurons that may fire at a step


def _target(rate: float, envs: tuple[str, ...] | None = None) -> Row:
    return Row(f"target rate {rate:g}", Variant("care-bn", neuron="clif", target_rate=rate), envs=envs)


SPARSITY = Study(
    name="sparsity",
    where="not in the paper",
    title="Return against spikes per decision: CaRe-BN with fewer and fewer spikes allowed (CLIF, TD3)",
    kind="sparsity",
    envs=(IDP, "Hopper-v4"),
    command="carebn energy RUN for each of its runs",
    rows=(
        Row("as many as it likes", Variant("care-bn", neuron="clif")),
        *(_target(rate) for rate in TARGETS),
        _target(0.08, (IDP,)),  # solves it, and leaves a margin to a tenth
    ),
    note="A study of this package, not of the paper. The return is that of the last policy, whose spikes were counted.",
)

OWN = (SPARSITY,)
