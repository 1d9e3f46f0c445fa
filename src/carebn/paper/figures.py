"""Every figure with data of the CaRe-BN paper. Few of their numbers are printed; the others are lines and bars.

Figure 2 and 8 are drawings.
"""

from carebn.paper.facts import ATARI, IDP, MUJOCO, NEURON_LABELS, NEURONS, WITHOUT_ANT
from carebn.paper.records import Row, Study, Variant
from carebn.paper.tables import ANN_DDPG, ANN_TD3, care, vanilla

_BN_AND_CARE = (Row("BN", Variant("bn", neuron="clif")), Row("CaRe-BN", care("clif", "td3")))


def _neuron_rows(algo: str) -> tuple[Row, ...]:
    pairs = ((f"{NEURON_LABELS[n]}{suffix}", make(n, algo)) for n in NEURONS for suffix, make in _FLAVOURS)
    return tuple(Row(label, variant) for label, variant in pairs)


_FLAVOURS = (("", vanilla), (" + CaRe-BN", care))
_ANN_ROW = {"td3": Row("ANN", ANN_TD3.variant), "ddpg": Row("ANN", ANN_DDPG.variant)}

INPUT_DISTRIBUTIONS = Study(
    name="input-distributions",
    where="Figure 1",
    title="Real and estimated distributions of a normaliser's input, while they change fast and slowly",
    kind="distributions",
    envs=(IDP,),
    seeds=1,
    command="carebn measure distributions RUN RUN with its two runs",
    rows=_BN_AND_CARE,
    note="The paper does not name the task of this figure; InvertedDoublePendulum with CLIF and TD3 is used.",
)
WASSERSTEIN = Study(
    name="wasserstein",
    where="Figure 3",
    title="Wasserstein distance between estimated and true distributions per layer (CLIF, TD3)",
    kind="wasserstein",
    envs=(IDP,),
    measure=("wasserstein",),
    rows=_BN_AND_CARE,
)
EXPLORATION = Study(
    name="exploration",
    where="Figure 4",
    title="Exploration returns of BN and CaRe-BN (CLIF, TD3)",
    kind="exploration",
    envs=MUJOCO,
    rows=_BN_AND_CARE,
)
TD3_CURVES = Study(
    name="td3-curves",
    where="Figure 5 top",
    title="Learning curves with and without CaRe-BN: TD3",
    kind="curves",
    envs=MUJOCO,
    rows=(_ANN_ROW["td3"], *_neuron_rows("td3")),
)
DDPG_CURVES = Study(
    name="ddpg-curves",
    where="Figure 5 bottom",
    title="Learning curves with and without CaRe-BN: DDPG",
    kind="curves",
    envs=WITHOUT_ANT,
    rows=(_ANN_ROW["ddpg"], *_neuron_rows("ddpg")),
    note="DDPG diverges on Ant, with ANN and SNN alike, so the paper leaves it out.",
)
RELATIVE_VARIANCE = Study(
    name="relative-variance",
    where="Figure 6 ab",
    title="Relative variance of final returns over seeds, averaged over environments",
    kind="relative-variance",
    envs=MUJOCO,
    summary_name="relative variance",
    rows=(
        Row("DDPG ANN", ANN_DDPG.variant, summary=17.71, envs=WITHOUT_ANT),
        *(Row(f"DDPG {row.label}", row.variant, envs=WITHOUT_ANT) for row in _neuron_rows("ddpg")),
        Row("TD3 ANN", ANN_TD3.variant, summary=21.24),
        *(Row(f"TD3 {row.label}", row.variant) for row in _neuron_rows("td3")),
    ),
    note="Only the two numbers of the ANN are printed; the others are bars.",
)
ABLATION = Study(
    name="ablation",
    where="Figure 6 c",
    title="Normalised maximum performance of CaRe-BN and its parts (CLIF, TD3)",
    kind="normalised-maximum",
    envs=MUJOCO,
    baseline=_ANN_ROW["td3"],
    summary_name="of the ANN",
    rows=(
        Row("BN", Variant("bn", neuron="clif")),
        Row("Re-BN", Variant("re", neuron="clif")),
        Row("Ca-BN", Variant("ca", neuron="clif")),
        Row("CaRe-BN", care("clif", "td3")),
    ),
)
ANN_CURVES = Study(
    name="ann-curves",
    where="Figure 6 d",
    title="Normalised learning curves of ANNs with and without CaRe-BN: DDPG and TD3",
    kind="normalised-curves",
    envs=MUJOCO,
    baseline=_ANN_ROW["td3"],
    rows=(
        Row("DDPG ANN", ANN_DDPG.variant, envs=WITHOUT_ANT),
        Row("DDPG ANN + CaRe-BN", Variant("ann-care", "ddpg"), envs=WITHOUT_ANT),
        Row("TD3 ANN", ANN_TD3.variant),
        Row("TD3 ANN + CaRe-BN", Variant("ann-care")),
    ),
)
ATARI_CURVES = Study(
    name="atari",
    where="Figure 7",
    title="Learning curves of deep spiking Q-networks with and without CaRe-BN on Atari (RAM)",
    kind="curves",
    envs=ATARI,
    seeds=3,
    rows=(Row("Vanilla SNN", Variant("vanilla", "dqn", "lif")), Row("CaRe-BN", Variant("care-bn", "dqn", "lif"))),
    note="The text says four games and names five.",
)
SAC_CURVES = Study(
    name="sac",
    where="Figure 9",
    title="Learning curves with SAC (CLIF)",
    kind="curves",
    envs=MUJOCO,
    rows=(
        Row("ANN", Variant("ann", "sac")),
        Row("CLIF", vanilla("clif", "sac")),
        Row("CLIF + CaRe-BN", care("clif", "sac")),
    ),
)
NORMALISED_CURVES = Study(
    name="normalised-curves",
    where="Figure 10",
    title="Normalised learning curves of CaRe-BN with each neuron beside the ANN: TD3",
    kind="normalised-curves",
    envs=MUJOCO,
    baseline=_ANN_ROW["td3"],
    rows=(_ANN_ROW["td3"], *(Row(f"{NEURON_LABELS[n]} + CaRe-BN", care(n, "td3")) for n in NEURONS)),
)
ANN_DDPG_CURVES = Study(
    name="ann-ddpg-curves",
    where="Figure 11",
    title="Learning curves of ANNs with and without CaRe-BN: DDPG",
    kind="curves",
    envs=WITHOUT_ANT,
    rows=(_ANN_ROW["ddpg"], Row("ANN + CaRe-BN", Variant("ann-care", "ddpg"))),
)
ANN_TD3_CURVES = Study(
    name="ann-td3-curves",
    where="Figure 12",
    title="Learning curves of ANNs with and without CaRe-BN: TD3",
    kind="curves",
    envs=MUJOCO,
    rows=(_ANN_ROW["td3"], Row("ANN + CaRe-BN", Variant("ann-care"))),
)

FIGURES = (
    INPUT_DISTRIBUTIONS, WASSERSTEIN, EXPLORATION, TD3_CURVES, DDPG_CURVES, RELATIVE_VARIANCE, ABLATION, ANN_CURVES,
    ATARI_CURVES, SAC_CURVES, NORMALISED_CURVES, ANN_DDPG_CURVES, ANN_TD3_CURVES,
)  # fmt: skip
