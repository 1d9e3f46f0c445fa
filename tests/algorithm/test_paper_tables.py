"""The defaults are the numbers in the paper's tables, typed here from the paper."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from agent_cases import make_agent

from carebn.algorithm import DDPGOptions, DQNOptions, GaussianPolicy, SACOptions, TD3Options
from carebn.network import Critic, SpikingActor, SpikingQNetwork, TwinCritic
from carebn.neuron import Rectangle
from carebn.norm import CaReBN
from carebn.training.build import make_agent as build_agent
from carebn.training.config import TrainConfig
from carebn.training.environment import Spaces

DQN_TABLE = {
    "learning_rate": 1e-4, "batch_size": 128, "gamma": 0.99, "target_interval": 2000, "start_epsilon": 1.0,
    "end_epsilon": 0.1, "epsilon_decay_steps": 20_000, "recalibration_batches": 100,
}  # fmt: skip
DDPG_TABLE = {
    "actor_learning_rate": 1e-4, "critic_learning_rate": 1e-3, "critic_weight_decay": 0.01, "batch_size": 256,
    "gamma": 0.99, "tau": 1e-3, "exploration_noise": 0.1, "recalibration_batches": 100,
}  # fmt: skip
TD3_TABLE = {
    "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "batch_size": 256, "gamma": 0.99, "tau": 5e-3,
    "exploration_noise": 0.1, "policy_noise": 0.2, "noise_clip": 0.5, "policy_frequency": 2,
    "recalibration_batches": 100,
}  # fmt: skip
SAC_TABLE = {
    "actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "alpha_learning_rate": 3e-4, "batch_size": 256,
    "gamma": 0.99, "tau": 1e-3, "recalibration_batches": 100,
}  # fmt: skip
TABLES = {
    "dqn": (DQNOptions, DQN_TABLE),
    "ddpg": (DDPGOptions, DDPG_TABLE),
    "td3": (TD3Options, TD3_TABLE),
    "sac": (SACOptions, SAC_TABLE),
}
any_algorithm = pytest.mark.parametrize("algo", TABLES)


def spaces(algo):
    if algo == "dqn":
        return Spaces(obs_dim=6, obs_dtype=np.uint8, actions=3, low=None, high=None)
    low, high = np.array([-1.0, -2.0], np.float32), np.array([1.0, 3.0], np.float32)
    return Spaces(obs_dim=4, obs_dtype=np.float32, actions=None, low=low, high=high)


@any_algorithm
def test_options(algo):
    options, table = TABLES[algo]
    assert asdict(options()) == table


@any_algorithm
def test_a_run_without_options_uses_the_table(algo):
    """The command line fills in its defaults from the same table."""
    config = TrainConfig(algo=algo).checked()
    assert asdict(config.algorithm_options()) == TABLES[algo][1]
    assert config.buffer_size == 10**6
    assert config.hidden == (256, 256)
    assert config.eval_interval == 5000  # also the re-calibration frequency
    assert config.recalibration_batches == 100
    assert config.learning_starts == 25_000
    assert config.total_timesteps - config.learning_starts == 10**6


@any_algorithm
def test_optimisers(algo):
    """Adam, with weight decay for DDPG's critic alone."""
    agent = make_agent(algo)
    table = TABLES[algo][1]
    for name, optimiser in vars(agent).items():
        if not name.endswith("optimiser"):
            continue
        assert isinstance(optimiser, torch.optim.Adam)
        (group,) = optimiser.param_groups
        rate = table["learning_rate"] if algo == "dqn" else table[name.replace("optimiser", "learning_rate")]
        assert group["lr"] == rate
        assert group["betas"] == (0.9, 0.999)
        assert group["eps"] == 1e-8
        assert not group["amsgrad"]
        assert not group.get("decoupled_weight_decay")
        decay = 0.01 if (algo, name) == ("ddpg", "critic_optimiser") else 0.0
        assert group["weight_decay"] == decay


@pytest.mark.parametrize(("algo", "sizes"), [("td3", (256, 256)), ("sac", (256, 256)), ("ddpg", (400, 300))])
def test_critics_as_built_for_a_run(algo, sizes):
    agent = build_agent(TrainConfig(algo=algo).checked(), spaces(algo))
    critic = agent.critic if algo == "ddpg" else agent.critic.single(1)
    first, second, last = critic.layers
    assert (first.out_features, second.out_features, last.out_features) == (*sizes, 1)
    late = 2 if algo == "ddpg" else 0  # DDPG: the action enters at the second layer
    assert (first.in_features, second.in_features) == (4 + 2 - late, sizes[0] + late)


@any_algorithm
def test_policies_as_built_for_a_run(algo):
    agent = build_agent(TrainConfig(algo=algo).checked(), spaces(algo))
    sizes = [layer.linear.out_features for layer in agent.policy.layers]
    assert sizes == ([256, 256] if algo == "dqn" else [256, 256, 2 * 10])
    assert all(layer.time_steps == 5 for layer in agent.policy.layers)
    for layer in agent.policy.layers:
        assert isinstance(layer.norm, CaReBN)
        assert layer.norm.momentum == 0.8
        assert layer.neuron.v_threshold == 0.5
        assert layer.neuron.surrogate == Rectangle(0.5)
    if algo != "dqn":
        assert agent.policy.encoder.population == 10
        assert agent.policy.encoder.threshold == 0.999


def test_networks_by_themselves():
    assert [layer.linear.out_features for layer in SpikingActor(3, 2).layers] == [256, 256, 20]
    assert [layer.linear.out_features for layer in SpikingQNetwork(3, 2).layers] == [256, 256]
    assert [layer.out_features for layer in Critic(3, 2).layers] == [256, 256, 1]
    assert [weight.shape[1] for weight in TwinCritic(3, 2).weights] == [256, 256, 1]
    spread = GaussianPolicy(SpikingActor(3, 2), 3).log_std
    assert [m.out_features for m in spread if isinstance(m, torch.nn.Linear)] == [256, 256, 2]


@pytest.mark.parametrize("seed", [0, 3])
def test_entropy_target_and_first_temperature(seed):
    agent = make_agent("sac", seed=seed)
    assert agent.target_entropy == -2
    assert float(agent.log_alpha["value"].detach()) == 0.0


@pytest.mark.parametrize(
    ("updates", "epsilon"),
    [(0, 1.0), (1, 0.999955), (5000, 0.775), (10_000, 0.55), (20_000, 0.1), (20_001, 0.1), (10**6, 0.1)],
)
def test_epsilon_schedule(updates, epsilon):
    """From 1 to 0.1 in a straight line over 20,000 steps, then flat."""
    agent = make_agent("dqn")
    agent.updates = updates
    assert agent.epsilon == pytest.approx(epsilon, rel=1e-12)
