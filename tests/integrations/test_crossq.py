"""CaRe-BN in sb3-contrib's CrossQ: in every place of a BatchRenorm, in the right mode, saved and loaded."""

from pathlib import Path
from typing import Any

import pytest
import torch

from carebn import CaReBN

contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed; '.[sb3]' brings it")
from sb3_contrib.common.torch_layers import BatchRenorm  # noqa: E402
from stable_baselines3.common.envs import BitFlippingEnv  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402

from carebn.integrations.crossq import CaReCrossQPolicy  # noqa: E402
from carebn.integrations.sb3 import RecalibrateCallback  # noqa: E402


def model(policy: Any = CaReCrossQPolicy, env: Any = "Pendulum-v1") -> Any:
    options = {"learning_starts": 20, "batch_size": 8, "policy_delay": 3, "seed": 0, "device": "cpu"}
    return contrib.CrossQ(policy, env, policy_kwargs={"net_arch": [8, 8]}, **options)


def of_type(kind: type, network: Any) -> list[Any]:
    return [module for module in network.modules() if isinstance(module, kind)]


def test_stands_where_batch_renorm_stood() -> None:
    ours, theirs = model().policy, model("MlpPolicy").policy
    assert not of_type(BatchRenorm, ours)
    assert len(of_type(CaReBN, ours)) == len(of_type(BatchRenorm, theirs)) > 0
    sizes = [[norm.num_features for norm in of_type(kind, p)] for kind, p in ((CaReBN, ours), (BatchRenorm, theirs))]
    assert sizes[0] == sizes[1]


def test_statistics_move_in_the_losses_own_passes_only() -> None:
    trained = model().learn(60)
    for norm in of_type(CaReBN, trained.critic):
        assert int(norm.num_batches_tracked) == trained._n_updates
    for norm in of_type(CaReBN, trained.actor):
        assert int(norm.num_batches_tracked) == trained._n_updates // 3


def test_recalibrated_evaluated_saved_and_loaded(tmp_path: Path) -> None:
    trained = model().learn(40, callback=RecalibrateCallback(20, 2))
    before = {name: tensor.clone() for name, tensor in trained.policy.state_dict().items()}
    evaluate_policy(trained, trained.get_env(), n_eval_episodes=1)
    trained.save(tmp_path / "model")
    loaded = contrib.CrossQ.load(tmp_path / "model")
    for state in (trained.policy.state_dict(), loaded.policy.state_dict()):
        assert before.keys() == state.keys()
        assert all(torch.equal(before[name], state[name]) for name in before)


def test_observations_in_parts_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="FlattenObservation"):
        model(env=BitFlippingEnv(n_bits=4, max_steps=4, continuous=True))
