"""The C file and its header as a user of a compiler meets them: linked, measured, and given nonsense."""

import os
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from deploy_cases import ACTIONS, OBS, byte_observations, observations, spiking_actor, spiking_q_network

from carebn.deploy import DeployedPolicy, integer_c
from carebn.deploy.c_export import CPolicy, compiler, memory, stack, to_c, to_header
from carebn.deploy.folding import fold
from carebn.deploy.integerise import integerised
from carebn.deploy.quantise import quantised

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")
ORIGIN = {
    "carebn": "0.1.0", "environment": "Hopper-v4", "run": "first", "algorithm": "td3", "method": "care-bn",
    "neuron": "clif", "seed": 7, "trained_steps": 20000, "mean_return": 9343.48,
    "return_of": "the evaluation at step 20,000", "observation": {"low": [None, 0.0] * 3, "high": [1.5, None] * 3},
}  # fmt: skip


def compiled(directory, *words):
    done = subprocess.run([compiler(), *STRICT, *words], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def written(directory, network, weights="float32", prefix="", name="policy"):
    (directory / f"{name}.c").write_text(to_c(network, weights, prefix))
    (directory / f"{name}.h").write_text(to_header(network, weights, prefix))


@pytest.mark.slow
def test_two_policies_in_one_program(tmp_path):
    """Each is compiled by itself, declared by its header, and linked with the other and a third without a prefix."""
    actor, q = fold(spiking_actor()), fold(spiking_q_network())
    small = quantised(actor, "int8", observations(200, seed=5))
    written(tmp_path, actor, "float64", prefix="hopper", name="hopper")
    written(tmp_path, q, prefix="cart_pole_", name="cartpole")
    whole = integerised(small, observations(200, seed=5))
    (tmp_path / "policy.c").write_text(integer_c.to_c(whole))
    (tmp_path / "policy.h").write_text(integer_c.to_header(whole))
    row = observations(1)[0]
    numbers = ", ".join(f"{x!r}f" for x in row.tolist())
    (tmp_path / "main.c").write_text(f"""
#include <stdio.h>
#include "hopper.h"
#include "cartpole.h"
#define POLICY_FLOAT
#include "policy.h"
#include "policy.h"

int main(void)
{{
    const float observation[HOPPER_POLICY_OBSERVATIONS] = {{{numbers}}};
    double action[HOPPER_POLICY_ACTIONS];
    float values[CART_POLE_POLICY_VALUES], rounded[POLICY_ACTIONS];
    if (hopper_policy(observation, action) || policy_float(observation, rounded)) return 1;
    int best = cart_pole_policy(observation, values);
    printf("%.17g %.17g %.9g %.9g %d %.9g\\n", action[0], action[1], rounded[0], rounded[1], best, values[0]);
    return 0;
}}
""")
    compiled(tmp_path, "main.c", "hopper.c", "cartpole.c", "policy.c", "-o", "main", "-lm")
    said = [float(word) for word in subprocess.check_output([tmp_path / "main"], text=True).split()]
    values = DeployedPolicy(q).values(row[None])[0]
    expected = [network.values(row[None])[0] for network in (DeployedPolicy(actor), whole)]
    np.testing.assert_allclose(said, [*expected[0], *expected[1], values.argmax(), values[0]], rtol=1e-5, atol=1e-6)


def test_the_header_agrees_with_the_file_and_serves_cpp(tmp_path):
    network = fold(spiking_q_network(make=byte_observations), byte_observations=True)
    written(tmp_path, network, prefix="ram")
    compiled(tmp_path, "-include", "policy.h", "-c", "policy.c", "-o", "policy.o")
    if shutil.which("g++"):
        (tmp_path / "user.cpp").write_text(
            '#include "policy.h"\n'
            "int main() { uint8_t observation[RAM_POLICY_OBSERVATIONS] = {}; float values[RAM_POLICY_VALUES];\n"
            "return ram_policy(observation, values) < 0; }\n"
        )
        subprocess.run(["g++", "user.cpp", "policy.o", "-o", "user", "-lm"], cwd=tmp_path, check=True)
        assert subprocess.run([tmp_path / "user"]).returncode == 0


@pytest.mark.parametrize("prefix", ["1st", "a-b", "a b", "*/", "_x", "é"])
def test_what_cannot_begin_a_name(prefix):
    with pytest.raises(ValueError, match="cannot begin a name in C"):
        to_c(fold(spiking_actor()), prefix=prefix)


@pytest.mark.parametrize("flags", [("-O0",), ("-O3", "-ffast-math")])
@pytest.mark.parametrize("make", [spiking_actor, spiking_q_network])
def test_nan_and_infinity_are_refused_and_nothing_is_written(make, flags, tmp_path):
    network = fold(make())
    written(tmp_path, network)
    size = network.readout.values
    (tmp_path / "main.c").write_text(f"""
#include <math.h>
#include "policy.h"

int main(void)
{{
    const float wrong[3] = {{NAN, INFINITY, -INFINITY}};
    float observation[{OBS}] = {{0}}, result[{size}];
    for (int o = 0; o < {size}; o++) result[o] = 42;
    for (int i = 0; i < {OBS}; i++)
        for (int k = 0; k < 3; k++) {{
            observation[i] = wrong[k];
            if (policy(observation, result) != POLICY_REFUSED) return 1;
            for (int o = 0; o < {size}; o++) if (result[o] != 42) return 2;
            observation[i] = 0;
        }}
    observation[0] = 3.4e38f;
    return policy(observation, result) < 0 ? 3 : 0;
}}
""")
    subprocess.run(
        [compiler(), "-std=c99", *flags, "main.c", "policy.c", "-o", "main", "-lm"], cwd=tmp_path, check=True
    )
    assert subprocess.run([tmp_path / "main"]).returncode == 0


def test_the_test_program_says_what_is_wrong(tmp_path):
    written(tmp_path, fold(spiking_actor()))
    program = CPolicy(tmp_path / "policy.c")
    assert program.values(observations(3)).shape == (3, ACTIONS)
    for wrong in (np.nan, -np.inf):
        obs = observations(3)
        obs[1, 2] = wrong
        with pytest.raises(ValueError, match=r"^got NaN or infinity in an observation$"):  # as the runtime says it
            program.values(obs)
    with pytest.raises(ValueError, match=f"expected {OBS} numbers for an observation, got 4"):
        program.values(observations(1, size=4))
    written(tmp_path, fold(spiking_q_network(make=byte_observations), byte_observations=True))
    with pytest.raises(ValueError, match="expected a byte, 0 to 255, got 256"):
        CPolicy(tmp_path / "policy.c").values(np.full((1, OBS), 256))


def test_the_comment_says_what_it_is():
    text = to_c(replace(fold(spiking_actor()), origin=ORIGIN), prefix="hopper")
    comment = text[: text.index("*/")]
    for line in (
        "A spiking policy for Hopper-v4, exported by carebn.",
        "training: td3, care-bn, clif, seed 7, 20,000 steps",
        "run: first",
        "mean return: 9343.5, in the evaluation at step 20,000",
        "time steps: 5 per decision",
        "numbers: float",
        "observation: 6 numbers (float), in the order",
        "observation[0] at most 1.5",
        "observation[1] at least 0",
        "action[0] from -1 to 2",
        "-1 if the observation holds NaN or infinity; then the action is left as before",
    ):
        assert f" {line}" in comment, line


def test_the_comment_of_a_discrete_policy():
    text = to_c(replace(fold(spiking_q_network()), origin={"first_action": -1}))
    assert "values: 4, one for each action, the higher the better" in text
    assert "returned: the number of the best action, counted from 0" in text
    assert "(the environment counts them from -1)" in text


def test_nothing_in_a_name_ends_the_comment(tmp_path):
    origin = {"environment": "x */ int oops; /* ??/ \\", "run": "a\nb é"}
    written(tmp_path, replace(fold(spiking_actor()), origin=origin))
    compiled(tmp_path, "-c", "policy.c", "-o", "policy.o")
    assert (tmp_path / "policy.c").read_text().isascii()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("size") is None, reason="no size")
@pytest.mark.parametrize("weights", ["float32", "float64"])
def test_flash_and_ram_are_as_measured(weights, tmp_path):
    """The comment's figures beside those of the object file; a compiler aligns arrays and adds constants of its own."""
    network = fold(spiking_actor(readout="max-membrane", hidden=(128, 96)))
    written(tmp_path, network, weights)
    text = (tmp_path / "policy.c").read_text()
    flash, ram = memory(text)
    assert f"flash: {flash:,} bytes of constants" in text
    assert f"RAM: {ram:,} bytes of static memory, and less than {stack(network):,} of the stack" in text
    for level in ("-O0", "-Os", "-O2"):
        compiled(tmp_path, level, "-c", "policy.c", "-o", "policy.o")
        said = subprocess.check_output(["size", "-A", "policy.o"], cwd=tmp_path, text=True)
        sizes = {name: int(number) for name, number in re.findall(r"^(\.\S+) +(\d+)", said, re.MULTILINE)}
        constants = sum(number for name, number in sizes.items() if name.startswith(".rodata"))
        assert flash <= constants <= flash + 700
        assert ram <= sizes[".bss"] <= ram + 300
        assert sizes.get(".data", 0) == 0
    if os.path.basename(os.path.realpath(compiler())).find("gcc") >= 0:
        compiled(tmp_path, "-O0", "-fstack-usage", "-c", "policy.c", "-o", "policy.o")
        frames = [int(line.split("\t")[1]) for line in (tmp_path / "policy.su").read_text().splitlines()]
        assert sum(frames) < stack(network)
