"""Environments as pictures."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from carebn.show import drawn_environment
from carebn.show.drawn_environment import DrawnEnvironment
from carebn.training.environment import make_env

pytestmark = pytest.mark.slow


def test_mujoco(mujoco_draws: None) -> None:
    hopper = DrawnEnvironment("Hopper-v4", partial(make_env, "Hopper-v4"), size=128)
    hopper.env.reset(seed=0)
    first = hopper.look()
    assert first.shape == (128, 128, 3)
    assert first.dtype == np.uint8
    assert first.std() > 10
    for _ in range(30):
        hopper.env.step(np.ones(3, np.float32))
    assert (hopper.look() != first).mean() > 0.01
    assert hopper.rate == 125
    hopper.env.close()


def test_fine_pictures_differ_but_show_the_same(mujoco_draws: None) -> None:
    pictures = []
    for fine in (False, True):
        ant = DrawnEnvironment("Ant-v4", partial(make_env, "Ant-v4"), size=128, fine=fine)
        ant.env.reset(seed=0)
        pictures.append(ant.look().astype(float))
        ant.env.close()
    assert (pictures[0] != pictures[1]).any()
    assert np.corrcoef(pictures[0].ravel(), pictures[1].ravel())[0, 1] > 0.8


def test_atari_in_its_own_time() -> None:
    pong = DrawnEnvironment("ALE/Pong-v5", partial(make_env, "ALE/Pong-v5"), size=128)
    obs, _ = pong.env.reset(seed=0)
    assert obs.shape == (128,)  # still the RAM
    assert pong.look().shape == (210, 160, 3)
    assert pong.rate == 15  # 60 Hz, an action for every four pictures
    pong.env.close()


def test_what_cannot_be_drawn_is_one_sentence() -> None:
    class Invisible(gym.Env):  # type: ignore[type-arg]
        observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gym.spaces.Discrete(2)

    gym.register("Invisible-v0", Invisible)
    with pytest.raises(ValueError, match="Invisible-v0 cannot be drawn: its class takes no render_mode; let it"):
        DrawnEnvironment("Invisible-v0", partial(make_env, "Invisible-v0"), size=128)


def test_a_class_that_draws_nothing_is_one_sentence() -> None:
    class Promising(gym.Env):  # type: ignore[type-arg]
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  # as Gymnasium has it
        observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, render_mode: str | None = None) -> None:
            self.render_mode = render_mode

    gym.register("Promising-v0", Promising, disable_env_checker=True, order_enforce=False)
    with pytest.raises(ValueError, match=r"Promising-v0 cannot be drawn: its class has no render\(\)"):
        DrawnEnvironment("Promising-v0", partial(make_env, "Promising-v0"), size=128).look()


def test_mujoco_without_anything_to_draw_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """EGL is kept from finding a driver; OSMesa and a screen are not tried, because this machine may have them."""
    monkeypatch.setattr(drawn_environment.working_backend, "__defaults__", (("egl",),))
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/no/such/driver.json")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(ValueError, match=r"neither EGL nor OSMesa works; install .* libegl1") as told:
        DrawnEnvironment("Hopper-v4", partial(make_env, "Hopper-v4"), size=128)
    assert "\n" not in str(told.value)


def test_a_wrong_choice_of_the_users_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    with pytest.raises(ValueError, match="MuJoCo cannot draw with MUJOCO_GL=nonsense; unset it"):
        DrawnEnvironment("Hopper-v4", partial(make_env, "Hopper-v4"), size=128)
