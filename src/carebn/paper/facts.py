"""What the paper is about, in a word or a number each: its tasks, its neurons, its budget, its prices."""

IDP = "InvertedDoublePendulum-v4"
MUJOCO = (IDP, "Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")
WITHOUT_ANT = (IDP, "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")  # DDPG diverges on Ant, with ANN and SNN alike
ATARI = ("ALE/Pong-v5", "ALE/Breakout-v5", "ALE/SpaceInvaders-v5", "ALE/Freeway-v5", "ALE/Seaquest-v5")

NEURONS = ("lif", "clif", "dn")
NEURON_LABELS = {"lif": "LIF", "clif": "CLIF", "dn": "DN"}

STEPS = 1_025_000  # of a run: 25,000 random ones, then a million with an update each

FLOP_PICOJOULE = 12.5  # a multiplication or an addition; a multiply-accumulate is two
SYNAPTIC_PICOJOULE = 0.077  # an addition of a weight, because a spike came
