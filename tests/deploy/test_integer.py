"""Policies in whole numbers: the model against a slow twin, its bounds, the C file against the model, and bad blobs."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deploy_cases import (
    OBS,
    ann_actor,
    ann_q_network,
    byte_observations,
    observations,
    spiking_actor,
    spiking_q_network,
)

from carebn import deploy
from carebn.deploy import DeployedPolicy
from carebn.deploy.blob import HEADER, blob_of
from carebn.deploy.c_export import compiler, memory
from carebn.deploy.folding import fold
from carebn.deploy.integer import IntegerPolicy
from carebn.deploy.integer_c import CODES, IntegerProgram, bound_lines, tables, to_c, to_header, write_c
from carebn.deploy.integer_parts import TANH, Bounds32, Decay, Stage, towards_zero
from carebn.deploy.integerise import integerised
from carebn.deploy.quantise import quantised

sys.path.insert(0, str(Path(__file__).parents[1]))
from chip.no_floats import helpers, instructions, undefined

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler")
CASES = {
    "care-clif": lambda: (spiking_actor(), observations),
    "care-lif": lambda: (spiking_actor(neuron="lif"), observations),
    "tdbn-clif": lambda: (spiking_actor("tdbn"), observations),
    "bntt-lif": lambda: (spiking_actor("bntt", "lif"), observations),
    "tebn-clif": lambda: (spiking_actor("tebn"), observations),
    "tab-clif": lambda: (spiking_actor("tab"), observations),
    "none-clif": lambda: (spiking_actor("none"), observations),
    "rate": lambda: (spiking_actor(readout="rate"), observations),
    "max-membrane": lambda: (spiking_actor(readout="max-membrane"), observations),
    "mean-membrane": lambda: (spiking_actor(readout="mean-membrane"), observations),
    "zscore": lambda: (spiking_actor(encoder_options={"observation": "zscore"}), observations),
    "raw": lambda: (spiking_actor(encoder_options={"observation": "raw", "reset": "threshold"}), observations),
    "16-steps": lambda: (spiking_actor(time_steps=16), observations),
    "q": lambda: (spiking_q_network(), observations),
    "q-bytes-bntt": lambda: (spiking_q_network("bntt", make=byte_observations), byte_observations),
    "ann": lambda: (ann_actor(), observations),
    "ann-q-bytes": lambda: (ann_q_network(make=byte_observations), byte_observations),
}


def made(name="care-clif", weights="int8"):
    """(trained policy graph, policy in whole numbers, what makes observations)."""
    network, make = CASES[name]()
    folded = fold(network, byte_observations=make is byte_observations)
    seen = make(500, seed=5)
    return folded, integerised(quantised(folded, weights, seen), seen), make


def hostile(policy, make, count=300, seed=0):
    """Ordinary observations, ones of every size, and the last that an int32 can hold."""
    rng = np.random.default_rng(seed)
    ordinary = policy.fixed(make(count, seed=seed + 9))
    if make is byte_observations:
        return ordinary
    any_size = (rng.standard_normal((count, OBS)) * 2.0 ** rng.integers(0, 31, (count, OBS))).clip(-(2**31), 2**31 - 1)
    ends = rng.choice([-(2**31), 2**31 - 1, -(2**31) + 1, 0, 1, -1], (50, OBS))
    return np.concatenate([ordinary, any_size.astype(np.int64), ends])


def slow(policy, row):
    """The same, one number after the other, as the document says it; every potential must fit in 32 bits."""

    def cut(x, bits):
        return int(math.copysign(abs(x) >> bits, x)) if x else 0

    def fits(x):
        assert -(2**31) <= x < 2**31
        return x

    steps, signal = policy.time_steps, []
    for t in range(steps):
        if policy.fields is None:
            signal.append([max(min(int(x), 2**23 - 1), -(2**23) + 1) for x in row])
            continue
        population = len(policy.fields.edges) // len(row)
        passed = [sum(int(row[n // population]) > int(e) for e in edges) for n, edges in enumerate(policy.fields.edges)]
        count = policy.fields.edges.shape[1]
        signal.append([int(policy.fields.trains[min(p, count - p)][t]) for p in passed])
    for stage in policy.stages:
        after = [[0] * stage.outputs for _ in range(steps)]
        for f in range(stage.outputs):
            c, v = 0, int(stage.start[f]) if stage.kind == "if" else 0
            for t in range(steps):
                total = sum(x * int(w) for x, w in zip(signal[t], stage.levels[:, f], strict=True) if x)
                rows, columns = stage.multiplier.shape
                multiplier = int(stage.multiplier[t if rows > 1 else 0, f if columns > 1 else 0])
                now = fits(cut(total * multiplier, stage.shift) + int(stage.bias[t if len(stage.bias) > 1 else 0, f]))
                if stage.kind == "relu":
                    after[t][f] = max(0, min(now, 32767))
                    continue
                c = fits(cut(c * stage.current_decay.numerator, stage.current_decay.bits) + now)
                v = fits(cut(v * stage.decay.numerator, stage.decay.bits) + c)
                after[t][f] = int(v > stage.threshold[f])
                if after[t][f]:
                    v = v - int(stage.threshold[f]) if stage.kind == "if" else 0
        signal = after
    reading, results = policy.reading, []
    for o in range(len(reading.bias)):
        sums = [sum(x * int(w) for x, w in zip(signal[t], reading.weight[:, o], strict=True)) for t in range(steps)]
        bias = int(reading.bias[o])
        value = cut(sum(int(s) * x for s, x in zip(reading.share, sums, strict=True)), reading.shift) + bias
        if reading.kind == "furthest":
            potentials = np.cumsum([cut(x, reading.shift) + bias for x in sums]).tolist()
            value = max(potentials, key=abs)
        fits(value)
        if policy.command is not None:
            fine = reading.bits - 6
            place, rest = divmod(abs(value), 1 << fine)
            bent = 2**15
            if place < 512:
                bent = int(TANH[place]) + ((int(TANH[place + 1]) - int(TANH[place])) * rest >> fine)
            command = policy.command
            moved = cut(int(command.reach[o]) * (bent if value >= 0 else -bent), 15)
            value = max(int(command.low[o]), min(int(command.middle[o]) + moved, int(command.high[o])))
        results.append(value)
    return results


@pytest.mark.parametrize("name", ["care-clif", "tab-clif", "max-membrane", "q-bytes-bntt", "ann", "q"])
def test_against_a_slow_twin(name):
    _, policy, make = made(name)
    rows = hostile(policy, make, 6)
    assert np.array_equal(policy.decide(rows), [slow(policy, row) for row in rows])


@pytest.mark.parametrize("weights", ["int8", "int16"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_policy_with_integer_weights(name, weights):
    """Rounding potentials to a 4096th of a level changes next to nothing: only the rounding of the weights counts."""
    network, make = CASES[name]()
    folded = fold(network, byte_observations=make is byte_observations)
    seen, obs = make(500, seed=5), make(500)
    rounded = quantised(folded, weights, seen)
    before, after = DeployedPolicy(rounded, compiled=False).values(obs), integerised(rounded, seen).values(obs)
    near = np.abs(before - after).max(1) < 2e-3 * max(1.0, np.abs(before).max())
    assert near.mean() > 0.98


def test_the_encoder_has_every_spike():
    """The table says what the encoder in floating point says, for observations in whole numbers."""
    for name in ("care-clif", "zscore", "raw", "16-steps"):
        folded, policy, make = made(name)
        fixed = policy.fixed(make(300, seed=3))
        obs = fixed / 2.0**policy.observation_bits
        x = (obs - folded.encoder.offset) / folded.encoder.divisor
        if folded.encoder.squash != "none":
            limit = folded.encoder.limit
            x = np.tanh(x) if folded.encoder.squash == "tanh" else np.clip(x, -limit, limit)
        u = (x[:, :, None] - folded.encoder.mean) * folded.encoder.precision
        a, v = np.exp(-(u * u * 0.5)).reshape(len(obs), -1), 0.0
        for spikes in policy.fields.spikes(fixed):
            v = v + a
            assert np.array_equal(spikes, v > folded.encoder.threshold)
            v = v - spikes * folded.encoder.subtract


def test_rounding_is_that_of_c():
    assert towards_zero(np.array([7, -7, 8, -8, 0, -1]), 2).tolist() == [1, -1, 2, -2, 0, 0]
    assert (Decay.of(0.75).numerator, Decay.of(0.75).bits) == (3, 2)
    assert (Decay.of(0.9).numerator, Decay.of(0.9).bits) == (29491, 15)
    assert (Decay.of(1.0).numerator, Decay.of(1.0).bits) == (1, 0)


def test_observations_are_rounded_and_cut_off():
    _, policy, _ = made()
    rows = np.zeros((1, OBS), np.float32)
    rows[0, :4] = [0.5 / 65536, -0.5 / 65536, 3e38, -3e38]
    assert policy.fixed(rows)[0].tolist() == [1, -1, 2**31 - 1, -(2**31) + 1, 0, 0]
    for wrong in (np.nan, np.inf):
        rows[0, 0] = wrong
        with pytest.raises(ValueError, match="got NaN or infinity in an observation"):
            policy.predict(rows[0])
    with pytest.raises(ValueError, match="expected an observation of size 6"):
        policy.predict(np.zeros(5))


def test_the_bounds_are_reached_and_not_passed():
    """By hand: weights 3 and −5, bias 2, a multiplier of 4; decays 1/2 and 3/4, two steps."""
    nothing = np.empty(0, np.int32)
    stage = Stage(
        "clif", np.array([[3], [-5]], np.int8), np.array([[4]], np.int32), 0, np.array([[2]], np.int32),
        np.array([1000], np.int32), nothing, Decay(1, 1), Decay(3, 2),
    )  # fmt: skip
    bounds = Bounds32.of(stage, 1, 2)
    assert (bounds.sum, bounds.product) == (8, 32)
    assert bounds.state == (34 * 3 >> 2) + (17 + 34)


def test_what_might_overflow_cannot_be_made():
    _, policy, _ = made()
    stage = policy.stages[0]
    wide = replace(stage, multiplier=np.array([[2**30]], np.int32))
    with pytest.raises(ValueError, match="a potential might leave 32 bits"):
        replace(policy, stages=(wide, *policy.stages[1:]))
    large = replace(policy.reading, weight=np.full(policy.reading.weight.shape, 2**30, np.int32))
    with pytest.raises(ValueError, match="a value might leave 32 bits"):
        replace(policy, reading=large)


def test_a_neuron_whose_bias_is_far_larger_than_its_weights_fits_too():
    folded, _, make = made()
    layer = folded.layers[0]
    weight, bias = layer.weight.copy(), layer.bias.copy()
    weight[:, 0] *= 1e-7
    bias[:, 0] = 3.0
    network = replace(folded, layers=(replace(layer, weight=weight, bias=bias), *folded.layers[1:]))
    policy = integerised(quantised(network, "int8", make(300)), make(300))
    spikes = DeployedPolicy(network, compiled=False).trace(make(50)).spikes[1][:, :, 0]
    assert spikes.all()
    stage = policy.stages[0]
    assert (stage.bias[0, 0] > stage.threshold[0]).all()


def test_as_a_file(tmp_path):
    for name in ("care-clif", "tab-clif", "q-bytes-bntt", "ann", "max-membrane"):
        _, policy, make = made(name, "int16")
        policy.save(tmp_path / "policy.npz")
        again = deploy.load(tmp_path / "policy.npz")
        assert isinstance(again, IntegerPolicy)
        assert np.array_equal(again.decide(hostile(policy, make, 50)), policy.decide(hostile(policy, make, 50)))
        assert again.info == policy.info
        assert again.info["weights"] == "int16"
    with pytest.raises(ValueError, match=r"it is a policy in whole numbers, which carebn\.deploy\.load opens"):
        deploy.PolicyGraph.read(tmp_path / "policy.npz")


def test_a_file_that_was_changed_is_refused(tmp_path):
    _, policy, _ = made()
    policy.save(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        arrays = dict(file)
    for name, wrong, sentence in (
        ("stages.0.multiplier", np.array([[2**30]], np.int32), "a potential might leave 32 bits"),
        ("stages.0.bias", arrays["stages.0.bias"].astype(float), "whole numbers are expected"),
        ("stages.0.levels", arrays["stages.0.levels"][1:], "another size"),
        ("fields.edges", arrays["fields.edges"][:, ::-1], "not sorted"),
        ("reading.share", np.ones(3, np.int32), "another number of steps"),
    ):
        np.savez(tmp_path / "wrong.npz", **(arrays | {name: wrong}))
        with pytest.raises(ValueError, match=sentence):
            deploy.load(tmp_path / "wrong.npz")
    description = json.loads(str(arrays["description"])) | {"version": 6}
    np.savez(tmp_path / "wrong.npz", **(arrays | {"description": np.array(json.dumps(description))}))
    with pytest.raises(ValueError, match="cannot be read as a policy"):
        deploy.load(tmp_path / "wrong.npz")


def test_what_is_refused_by_name():
    for options, sentence in (
        ({"neuron": "dn"}, "the neuron dn squares its potential, and in whole numbers there are only lif and clif"),
        ({"encoder_options": {"coding": "analogue"}}, "analogue coding has no spikes that a table could hold"),
    ):
        network = quantised(fold(spiking_actor(**options)), "int8", observations(200))
        with pytest.raises(ValueError, match=sentence):
            integerised(network, observations(200))
    with pytest.raises(ValueError, match="the network has no integer weights"):
        integerised(fold(spiking_actor()), observations(200))


# --- C ---------------------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("weights", ["int8", "int16"])
@pytest.mark.parametrize("name", CASES)
def test_c_is_equal_bit_for_bit(name, weights, tmp_path):
    _, policy, make = made(name, weights)
    rows = hostile(policy, make)
    (tmp_path / "policy.bin").write_bytes(blob_of(tables(policy)).data)
    for blob in (False, True):
        write_c(policy, tmp_path / "policy.c", blob=blob)
        words = [str(tmp_path / "policy.bin")] if blob else []
        program = IntegerProgram(tmp_path / "policy.c", *words)
        assert np.array_equal(program.decide(rows), policy.decide(rows))


@needs_compiler
@pytest.mark.slow
def test_nothing_overflows_as_the_compiler_sees_it(tmp_path):
    """Every signed overflow, shift and index out of bounds would end the program."""
    for name in ("care-clif", "tab-clif", "q", "ann"):
        _, policy, make = made(name, "int16")
        rows = hostile(policy, make)
        write_c(policy, tmp_path / "policy.c")
        flags = ("-std=c99", "-fsanitize=undefined,address", "-fno-sanitize-recover", "-DPOLICY_MAIN")
        built = subprocess.run([compiler(), *flags, "policy.c", "-o", "policy"], cwd=tmp_path, capture_output=True)
        if built.returncode:
            pytest.skip("this compiler has no sanitisers")
        text = "\n".join(" ".join(map(str, row)) for row in rows.tolist())
        done = subprocess.run([tmp_path / "policy"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert np.array_equal([list(map(int, line.split())) for line in done.stdout.splitlines()], policy.decide(rows))


@needs_compiler
@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump")
@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
def test_no_floating_point_and_no_library(level, tmp_path):
    for name in ("care-clif", "ann", "max-membrane"):
        write_c(made(name)[1], tmp_path / "policy.c")
        subprocess.run([compiler(), "-std=c99", level, "-c", "policy.c", "-o", "policy.o"], cwd=tmp_path, check=True)
        tools = (["nm"], ["objdump", "-d"])
        nm, dump = (subprocess.check_output([*tool, "policy.o"], cwd=tmp_path, text=True) for tool in tools)
        assert not helpers(nm)
        assert set(undefined(nm)) <= {"memset", "memcpy", "_GLOBAL_OFFSET_TABLE_"}
        if "x86-64" in dump:
            assert not instructions(dump, "computer")


def test_the_search_for_floating_point_finds_it():
    assert helpers("         U __aeabi_fadd\n         U __aeabi_lmul\n         U tanhf\n00 T policy") == [
        "__aeabi_fadd",
        "tanhf",
    ]
    assert helpers("         U __muldf3\n         U __muldi3\n         U __floatsisf\n") == ["__muldf3", "__floatsisf"]
    for board, line in (
        ("cortex-m4", "  10:\tee70 0a20 \tvadd.f32\ts1, s0, s1"),
        ("riscv32", "  10:\t00f57553 \tfadd.s\tfa0,fa0,fa5"),
        ("computer", "  10:\tf3 0f 58 c1 \taddss  %xmm1,%xmm0"),
    ):
        assert instructions(line, board)
        assert not instructions("  10:\t00 \tfence\n  12:\t00 \tadd\tr0, r1", board)


@needs_compiler
def test_the_float_wrapper(tmp_path):
    """It says what numpy says, refuses NaN, and stands only in the file that asks for it."""
    _, policy, make = made()
    (tmp_path / "policy.c").write_text(to_c(policy, prefix="hopper"))
    (tmp_path / "policy.h").write_text(to_header(policy, prefix="hopper"))
    rows = make(20)
    numbers = ",\n".join("{" + ", ".join(f"{x!r}f" for x in row) + "}" for row in rows.tolist())
    (tmp_path / "main.c").write_text(f"""
#include <math.h>
#include <stdio.h>
#define HOPPER_POLICY_FLOAT
#include "policy.h"
int main(void)
{{
    static const float rows[20][6] = {{{numbers}}};
    float wrong[6] = {{0, NAN, 0, 0, 0, 0}}, action[2] = {{42, 42}};
    if (hopper_policy_float(wrong, action) != HOPPER_POLICY_NOT_FINITE || action[0] != 42) return 1;
    wrong[1] = INFINITY;
    if (hopper_policy_float(wrong, action) != HOPPER_POLICY_NOT_FINITE || action[0] != 42) return 2;
    for (int i = 0; i < 20; i++) {{
        if (hopper_policy_float(rows[i], action)) return 3;
        printf("%.17g %.17g\\n", action[0], action[1]);
    }}
    return 0;
}}
""")
    flags = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")
    subprocess.run([compiler(), *flags, "main.c", "policy.c", "-o", "main"], cwd=tmp_path, check=True)
    said = subprocess.check_output([tmp_path / "main"], text=True)
    assert np.array_equal(np.array([line.split() for line in said.splitlines()], float), policy.values(rows))


def test_the_comment_says_what_it_is():
    _, policy, _ = made()
    text = to_c(replace(policy, origin={"environment": "Hopper-v4", "first_action": 3}))
    flash, ram = memory(text)
    for line in (
        "A spiking policy for Hopper-v4 in whole numbers, exported by carebn.",
        f"flash: {flash:,} bytes of constants",
        f"RAM: {ram:,} bytes of static memory",
        "(int32_t), in the order in which the environment gives them",
        "in units of 2^-16: multiply the environment's number by 65536 and round",
        "action: 2 numbers, in units of 2^-16: divide by 65536",
        *bound_lines(policy)[1:],
    ):
        assert line in text
    assert f"potential {policy.bounds[0].state:,}" in text


# --- blobs -----------------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.slow
def test_blobs_that_are_refused(tmp_path):
    """Of another policy, truncated, longer, flipped anywhere: a code, and no action is taken."""
    _, policy, _ = made()
    _, other, _ = made(weights="int16")
    shifted = replace(policy.stages[0], bias=policy.stages[0].bias + 1)
    twin = replace(policy, stages=(shifted, *policy.stages[1:]))  # of the same shape
    (tmp_path / "policy.c").write_text(to_c(policy, blob=True))
    (tmp_path / "policy.h").write_text(to_header(policy, blob=True))
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
#include "policy.h"
int main(int count, char **words)
{
    static union { uint32_t aligned; unsigned char bytes[1 << 20]; } weights;
    int32_t observation[POLICY_OBSERVATIONS] = {0}, action[POLICY_ACTIONS];
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(words[i], "rb");
        uint32_t size = (uint32_t)fread(weights.bytes, 1, sizeof weights.bytes, file);
        fclose(file);
        action[0] = action[1] = 42;
        int code = policy_load(weights.bytes, size), acted = policy(observation, action);
        printf("%d %d %d\\n", code, acted, action[0] == 42 && action[1] == 42);
    }
    for (int i = 0; i < 2; i++) {
        action[0] = 42;
        int code = i ? policy_load(0, 0) : policy_load(weights.bytes + 1, 100), acted = policy(observation, action);
        printf("%d %d %d\\n", code, acted, action[0] == 42);
    }
    return 0;
}
""")
    flags = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")
    subprocess.run([compiler(), *flags, "main.c", "policy.c", "-o", "main"], cwd=tmp_path, check=True)
    good = blob_of(tables(policy)).data
    code = {name: number for name, (number, _) in CODES.items()}
    cases = [(good, 0)]
    cases += [(blob_of(tables(x)).data, code["OTHER_POLICY"]) for x in (other, twin)]
    cases += [(good[:n], code["WRONG_SIZE"]) for n in (0, 7, HEADER - 1, HEADER, len(good) - 1)]
    cases += [(good + b"\0", code["WRONG_SIZE"]), (b"\x7fELF" + good[4:], code["NOT_A_BLOB"])]

    def flipped(byte, bit):
        data = bytearray(good)
        data[byte] ^= 1 << bit
        return bytes(data)

    cases += [(flipped(i, 3), code["NOT_A_BLOB"]) for i in range(8)]
    cases += [(flipped(i, 0), code["DAMAGED"]) for i in range(8, 16)]
    cases += [(flipped(i, 7), code["OTHER_POLICY"]) for i in range(16, HEADER)]
    rng = np.random.default_rng(0)
    cases += [(flipped(int(i), int(rng.integers(8))), code["DAMAGED"]) for i in rng.integers(HEADER, len(good), 100)]
    cases += [(good, 0)]  # after all that it loads again
    for i, (data, _) in enumerate(cases):
        (tmp_path / f"{i}.bin").write_bytes(data)
    words = [f"{i}.bin" for i in range(len(cases))]
    said = subprocess.check_output([tmp_path / "main", *words], cwd=tmp_path, text=True).splitlines()
    for line, (_, expected) in zip(said[:-2], cases, strict=True):
        loaded, acted, untouched = map(int, line.split())
        assert loaded == expected
        assert (acted, untouched) == ((0, 0) if expected == 0 else (code["NOT_LOADED"], 1))
    assert said[-2:] == [f"{code['MISALIGNED']} {code['NOT_LOADED']} 1", f"{code['WRONG_SIZE']} {code['NOT_LOADED']} 1"]


def test_the_blob_is_what_the_document_says():
    import hashlib
    import zlib

    _, policy, _ = made()
    data = blob_of(tables(policy)).data
    assert data[:8] == b"CAREBNB1"
    assert int.from_bytes(data[8:12], "little") == len(data) - 32
    assert int.from_bytes(data[12:16], "little") == zlib.crc32(data[32:])
    assert data[16:32] != hashlib.sha256(data[32:]).digest()[:16]  # names and shapes belong to it
    assert np.array_equal(
        np.frombuffer(data[32:], "<i4", policy.fields.edges.size).reshape(policy.fields.edges.shape),
        policy.fields.edges,
    )


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", ["care-clif", "max-membrane", "q-bytes-bntt", "ann", "ann-q-bytes"])
def test_no_conversion_happens_unsaid(name, tmp_path):
    """Two policies in one program, their headers in C++ too, with every warning about numbers that change."""
    flags = ("-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow")
    pair = ((made(name)[1], "one_", False), (made(name, "int16")[1], "two_", True))
    for policy, prefix, blob in pair:
        (tmp_path / f"{prefix}.c").write_text(to_c(policy, prefix, blob))
        (tmp_path / f"{prefix}.h").write_text(to_header(policy, prefix, blob))
        own = ("-std=c99", "-pedantic", "-Wmissing-prototypes", "-c", f"{prefix}.c")
        subprocess.run([compiler(), *flags, *own], cwd=tmp_path, check=True)
    (tmp_path / "main.cpp").write_text("""
#define ONE_POLICY_FLOAT
#include "one_.h"
#include "two_.h"
int main() { return two_policy_load(0, 0) == TWO_POLICY_WRONG_SIZE ? 0 : 1; }
""")
    if shutil.which("g++"):
        words = ("-std=c++11", "-Wno-unused-function", "main.cpp", "one_.o", "two_.o", "-o", "main")
        subprocess.run(["g++", *flags, *words], cwd=tmp_path, check=True)
        subprocess.run([tmp_path / "main"], check=True)


@needs_compiler
@pytest.mark.slow
def test_every_truncation_and_every_flipped_byte_is_refused(tmp_path):
    _, policy, _ = made()
    (tmp_path / "policy.c").write_text(to_c(policy, blob=True))
    (tmp_path / "policy.h").write_text(to_header(policy, blob=True))
    good = blob_of(tables(policy)).data
    (tmp_path / "policy.bin").write_bytes(good)
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
#include "policy.h"
static union { uint32_t aligned; unsigned char bytes[1 << 20]; } weights;
static long wrong;

static void refused(uint32_t size, int expected)
{
    int32_t observation[POLICY_OBSERVATIONS] = {0}, action[POLICY_ACTIONS];
    action[0] = 42;
    if (policy_load(weights.bytes, size) != expected) wrong++;
    if (policy(observation, action) != (expected ? POLICY_NOT_LOADED : 0) || (expected && action[0] != 42)) wrong++;
}

int main(void)
{
    FILE *file = fopen("policy.bin", "rb");
    uint32_t size = (uint32_t)fread(weights.bytes, 1, sizeof weights.bytes, file);
    for (uint32_t n = 0; n < size; n++) refused(n, POLICY_WRONG_SIZE);
    refused(size, 0);
    for (uint32_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            if (i >= 64 && bit != (int)(i % 8)) continue;  /* of the payload one in every byte, for the time it takes */
            int magic = i < 8, identity = i >= 16 && i < 32;
            weights.bytes[i] ^= (unsigned char)(1 << bit);
            refused(size, magic ? POLICY_NOT_A_BLOB : identity ? POLICY_OTHER_POLICY : POLICY_DAMAGED);
            weights.bytes[i] ^= (unsigned char)(1 << bit);
        }
    refused(size, 0);
    printf("%ld wrong of %lu bytes\\n", wrong, (unsigned long)size);
    return 0;
}
""")
    subprocess.run([compiler(), "-std=c99", "-O2", "main.c", "policy.c", "-o", "main"], cwd=tmp_path, check=True)
    said = subprocess.check_output([tmp_path / "main"], cwd=tmp_path, text=True)
    assert said == f"0 wrong of {len(good)} bytes\n"
