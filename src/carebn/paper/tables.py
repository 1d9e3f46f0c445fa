"""Every table with results of the CaRe-BN paper, with all numbers that it prints.

Table 2 to 9 are hyper-parameters: the defaults of ``carebn train``.
"""

from carebn.paper.facts import FLOP_PICOJOULE, MUJOCO, NEURON_LABELS, SYNAPTIC_PICOJOULE, WITHOUT_ANT
from carebn.paper.records import Published, Row, Study, Variant


def vanilla(neuron: str, algo: str) -> Variant:
    """A spiking actor without a normaliser. With CLIF it is pop-SAN and with DN it is MDC-SAN: the paper prints the
    same numbers for both names, so they are the same runs here."""
    methods = {"clif": "pop-san", "dn": "mdc-san"}
    return Variant(methods.get(neuron, "vanilla"), algo, neuron)


def care(neuron: str, algo: str) -> Variant:
    return Variant("care-bn", algo, neuron)


def _numbers(text: str) -> tuple[Published, ...]:
    """``9348±2 …`` → one number per column."""
    return tuple(Published(*map(float, word.split("±"))) for word in text.split())


def _row(label: str, variant: Variant, numbers: str, summary: float) -> Row:
    return Row(label, variant, _numbers(numbers), summary)


def _returns(where: str, name: str, title: str, *rows: Row, baseline: Row | None = None, note: str = "") -> Study:
    """A table of max average returns; ``baseline``: of the gains, by default the first row. Where a row has four
    numbers, Ant is left out."""
    envs = MUJOCO if len(rows[0].published) == len(MUJOCO) else WITHOUT_ANT
    title = f"Max average returns {title}"
    return Study(name, where, title, "returns", envs, rows, baseline or rows[0], summary_name="APG", note=note)


# --- tables of returns ------------------------------------------------------------------------------------------------

ANN_TD3 = _row("ANN", Variant("ann"), "7503±3713 4770±1014 10857±475 3410±164 4340±383", 0.00)
ANN_DDPG = _row("ANN", Variant("ann", "ddpg"), "9357±4 8604±241 3486±162 3385±408", 0.00)
VANILLA_LIF = "9347±1 4243±949 9073±946 3507±85 2807±1834"
VANILLA_CLIF = "9351±1 4590±1006 9594±689 2772±1263 3307±1514"
VANILLA_DN = "9350±1 4800±994 9147±231 3446±131 3964±1353"
CARE_CLIF = "9348±2 5373±159 9563±442 3586±49 4296±268"
CARE_DN = "9349±2 5444±161 9581±638 3470±115 4084±362"
CARE_LIF = "9346±1 5083±356 8813±533 3489±118 4556±497"

MAIN = _returns(
    "Table 1",
    "main",
    "with CLIF neurons and TD3, beside other spiking methods and normalisers",
    ANN_TD3,
    _row("ANN-SNN", Variant("ann-snn"), "3859±4440 3550±963 8703±658 3098±281 4235±354", -21.11),
    _row("pop-SAN", vanilla("clif", "td3"), VANILLA_CLIF, -6.66),
    _row("MDC-SAN", vanilla("dn", "td3"), VANILLA_DN, 0.37),
    _row("ILC-SAN", Variant("ilc-san"), "9352±1 5584±272 9222±615 3403±148 4200±717", 4.64),
    _row("tdBN", Variant("tdbn", neuron="clif"), "9346±2 4403±1134 9402±527 3592±46 3464±970", -2.28),
    _row("BNTT", Variant("bntt", neuron="clif"), "9347±1 4379±941 9466±659 3524±161 3689±1247", -1.62),
    _row("TEBN", Variant("tebn", neuron="clif"), "9349±1 4408±1156 9452±539 3472±135 4235±381", 0.69),
    _row("TABN", Variant("tab", neuron="clif"), "9348±2 4382±753 9784±169 3585±83 4537±398", 3.25),
    _row("CaRe-BN", care("clif", "td3"), CARE_CLIF, 5.90),
    note="The paper's ANN fails on InvertedDoublePendulum; without it the APG of CaRe-BN is 1.2 %, not 5.9 %. Our "
    "ANN-SNN is the policy after the last step, converted with T = 100 and evaluated once. It has no maximum over "
    "training, so what is relative to the ANN in its row is relative to the ANN's last evaluation.",
)


def _with_and_without(where: str, neuron: str, algo: str, plain: str, with_care: str, apg: float) -> Study:
    baseline = _row("Vanilla SNN", vanilla(neuron, algo), plain, 0.00)
    title = f"with and without CaRe-BN: {algo.upper()}, {NEURON_LABELS[neuron]} neurons"
    return _returns(where, f"{neuron}-{algo}", title, baseline, _row("CaRe-BN", care(neuron, algo), with_care, apg))


LIF_DDPG = _with_and_without(
    "Table 10", "lif", "ddpg", "9352±1 7954±356 3035±127 2931±1395", "9351±1 8199±305 3512±79 3347±321", 8.24
)
CLIF_DDPG = _with_and_without(
    "Table 11", "clif", "ddpg", "9352±2 8205±376 2566±1270 2224±1607", "9352±0 7972±245 3247±100 3709±321", 22.62
)
DN_DDPG = _with_and_without(
    "Table 12", "dn", "ddpg", "9351±3 8069±897 3134±134 3238±633", "9351±2 7731±457 3418±159 3438±399", 2.76
)
LIF_TD3 = _with_and_without("Table 13", "lif", "td3", VANILLA_LIF, CARE_LIF, 15.74)
CLIF_TD3 = _with_and_without("Table 14", "clif", "td3", VANILLA_CLIF, CARE_CLIF, 15.20)
DN_TD3 = _with_and_without("Table 15", "dn", "td3", VANILLA_DN, CARE_DN, 4.37)

LIF_NORMALISERS = _returns(
    "Table 16",
    "lif-normalisers",
    "of normalisers with LIF neurons and TD3",
    ANN_TD3,
    _row("Vanilla LIF", vanilla("lif", "td3"), VANILLA_LIF, -7.08),
    _row("tdBN", Variant("tdbn", neuron="lif"), "9346±1 4876±577 8845±526 3601±29 4098±408", 1.65),
    _row("BNTT", Variant("bntt", neuron="lif"), "9348±1 5244±321 9339±874 3593±62 3480±1450", 1.22),
    _row("TEBN", Variant("tebn", neuron="lif"), "9347±1 4408±1156 9452±539 3472±135 4235±381", 0.69),
    _row("TABN", Variant("tab", neuron="lif"), "9347±1 4431±1353 9173±595 3474±183 3818±1133", -1.64),
    _row("CaRe-BN", care("lif", "td3"), CARE_LIF, 3.92),
    note="The TEBN row repeats four of its five numbers from Table 1, where neurons are CLIF.",
)

TIME_STEPS = _returns(
    "Table 17",
    "time-steps",
    "of CaRe-BN with 2, 3, 5 and 8 simulation steps (CLIF, TD3)",
    *(
        _row(f"T = {steps}", Variant("care-bn", "td3", "clif", None if steps == 5 else steps), numbers, apg)
        for steps, numbers, apg in (
            (2, "953±247 4924±171 7635±392 3588±10 3885±1365", -23.80),
            (3, "9285±100 5078±325 8190±567 3522±89 4391±282", 2.03),
            (5, CARE_CLIF, 5.90),  # the default, and the main table's row
            (8, "9354±1 5417±421 9989±278 3479±95 4311±348", 6.32),
        )
    ),
    baseline=ANN_TD3,
)

_ANN_NOTE = 'The paper calls the first row "Vanilla SNN"; it is the ANN.'
ANN_CARE_DDPG = _returns(
    "Table 18",
    "ann-ddpg",
    "of ANNs with and without CaRe-BN: DDPG",
    ANN_DDPG,
    _row("CaRe-BN", Variant("ann-care", "ddpg"), "9360±0 8887±408 3475±135 3328±882", 0.33),
    note=_ANN_NOTE,
)
ANN_CARE_TD3 = _returns(
    "Table 19",
    "ann-td3",
    "of ANNs with and without CaRe-BN: TD3",
    ANN_TD3,
    _row("CaRe-BN", Variant("ann-care"), "9360±0 5014±1122 10458±1271 3436±114 3021±1360", -0.69),
    note=_ANN_NOTE,
)

# --- tables of costs --------------------------------------------------------------------------------------------------

TRAINING_COST = Study(
    name="training-cost",
    where="Table 20",
    title="Training cost of normalisers: Ant, CLIF, TD3",
    kind="cost",
    envs=("Ant-v4",),
    seeds=1,
    columns=("seconds per 5000 steps", "memory (MiB)"),
    command="carebn measure cost tdbn bntt tebn tab care-bn",
    rows=tuple(
        Row(label, Variant(method, neuron="clif"), (Published(seconds), Published(mebibytes)))
        for label, method, seconds, mebibytes in (
            ("tdBN", "tdbn", 242, 437),
            ("BNTT", "bntt", 266, 437),
            ("TEBN", "tebn", 251, 441),
            ("TAB", "tab", 264, 441),
            ("CaRe-BN", "care-bn", 247, 437),
        )
    ),
    note="Published on an RTX 3090 with a Xeon Platinum 8358P; the memory is the graphics card's. Ours is the peak of "
    "a whole process, libraries included, while its replay is nearly empty.",
)

ENERGY = Study(
    name="energy",
    where="Table 21",
    title="Energy per decision in nJ: CLIF, TD3",
    kind="energy",
    envs=MUJOCO,
    decimals=2,
    summary_name="Average",
    command="carebn energy RUN for each of its runs",
    rows=(
        _row("ANN", ANN_TD3.variant, "1715.20 1862.40 1785.60 1728.00 1785.60", 1775.36),
        _row("SNN with CaRe-BN", care("clif", "td3"), "12.94 17.36 17.37 16.59 18.13", 16.48),
    ),
    note=f"{FLOP_PICOJOULE:g} pJ per floating-point operation, "
    f"{1000 * SYNAPTIC_PICOJOULE:g} fJ per synaptic operation.",
)

TABLES = (
    MAIN, LIF_DDPG, CLIF_DDPG, DN_DDPG, LIF_TD3, CLIF_TD3, DN_TD3, LIF_NORMALISERS, TIME_STEPS,
    ANN_CARE_DDPG, ANN_CARE_TD3, TRAINING_COST, ENERGY,
)  # fmt: skip
