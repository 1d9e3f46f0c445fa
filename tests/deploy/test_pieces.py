"""What a file says about the numbers of an observation that was made flat, held against Gymnasium's own flattening."""

import json
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deploy_cases import spiking_actor
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatdim, flatten
from test_integer import made

from carebn import deploy, load
from carebn.deploy import c_export, integer_c
from carebn.deploy.folding import fold
from carebn.deploy.origin import origin_of
from carebn.deploy.pieces import pieces_of

ARM = Dict({"joints": Box(-1, 1, (2,)), "target": Box(-1, 1, (2,)), "near": Discrete(2)})
LINES = (
    "made flat as Gymnasium does it (gymnasium.spaces.flatten)",
    "    observation[0..1]: joints\n",
    "    observation[2..3]: near, one-hot (observation[2] is 1 for the value 0)\n",
    "    observation[4..5]: target\n",
)
NESTED = Dict(
    {
        "speed": Box(-9, 9, ()),
        "arm": ARM,
        "pair": Tuple((Box(0, 1, (2, 3)), Dict({"near": Discrete(4, start=-2), "flags": MultiBinary(3)}))),
        "modes": MultiDiscrete([3, 2], start=[0, 5]),
        "grid": MultiDiscrete([[2, 3], [4, 2]]),
        "ordered": Dict(OrderedDict(z=Box(0, 1, (2,)), a=MultiBinary((2, 2)))),
        "map": Box(0, 1, (1,)),
    }
)
SPACES = {
    "nested": NESTED,
    "arm": ARM,
    "tuple": Tuple((Discrete(3), Dict({"near": Discrete(2)}), Box(-1, 1, (2,)))),
    "discrete": Discrete(5, start=3),
    "multi-discrete": MultiDiscrete([3, 2]),
    "multi-binary": MultiBinary(4),
    "matrix": Box(-1, 1, (2, 3)),
}


def field(observation, name):
    """What stands at a path such as pair.1.near or modes[1]."""
    path, _, index = name.partition("[")
    for key in path.split(".") if path else []:
        observation = observation[int(key) if isinstance(observation, tuple) else key]
    return observation[tuple(map(int, index.rstrip("]").split(",")))] if index else observation


@pytest.mark.parametrize("name", SPACES)
def test_each_piece_is_the_field_of_its_name(name):
    space = SPACES[name]
    pieces = json.loads(json.dumps(pieces_of(space)))
    space.seed(0)
    for _ in range(20):
        observation = space.sample()
        flat = flatten(space, observation)
        for piece in pieces:
            found, own = flat[piece["start"] : piece["start"] + piece["size"]], field(observation, piece["name"])
            if piece["kind"] == "one-hot":
                own = np.arange(piece["first"], piece["first"] + piece["size"]) == own
            assert np.array_equal(found, np.ravel(own)), piece
            assert piece.get("shape", list(np.shape(own))) == list(np.shape(own))
    ends = [piece["start"] + piece["size"] for piece in pieces]
    assert [piece["start"] for piece in pieces] == [0, *ends[:-1]]
    assert ends[-1] == flatdim(space)


def test_pieces_have_the_names_of_their_paths():
    names = [piece["name"] for piece in pieces_of(NESTED)]
    assert names[:3] == ["arm.joints", "arm.near", "arm.target"]  # in Gymnasium's order, which is not that above
    assert {"pair.0", "pair.1.near", "modes[1]", "grid[1,0]", "speed"} <= set(names)
    assert names.index("ordered.z") < names.index("ordered.a")
    assert [piece["name"] for piece in pieces_of(SPACES["tuple"])] == ["0", "1.near", "2"]


def texts(space):
    """All that is written in C about a policy of such observations."""
    origin = {"observation": {"pieces": pieces_of(space)}}
    network, whole = replace(fold(spiking_actor()), origin=origin), replace(made()[1], origin=origin)
    files = (
        c_export.to_c(network),
        c_export.to_header(network),
        integer_c.to_c(whole),
        integer_c.to_header(whole),
    )
    return [file.replace("\n * ", "\n") for file in files]


def test_c_files_list_the_pieces():
    for text in texts(ARM):
        assert all(line in text for line in LINES)
        assert "in which the environment gives them" not in text


@pytest.mark.parametrize(
    ("space", "line"),
    [
        (Discrete(6, start=3), "    observation[0..5]: one-hot (observation[0] is 1 for the value 3)\n"),
        (MultiDiscrete([4, 2]), "    observation[4..5]: [1], one-hot (observation[4] is 1 for the value 0)\n"),
        (MultiBinary(6), "    observation[0..5]: each 0 or 1\n"),
        (Box(-1, 1, (2, 3)), "    observation[0..5]: an array of 2 x 3, the last index fastest\n"),
        (Tuple((Box(0, 1, (5,)), MultiBinary(1))), "    observation[5]: 1, 0 or 1\n"),
    ],
)
def test_what_a_piece_is_in_words(space, line):
    assert all(line in text for text in texts(space))


def test_the_pieces_are_known_where_the_policy_is_loaded(tmp_path):
    policy = load(Path(__file__).parent / "trained_clif")
    policy.own = (ARM, Discrete(2))
    replace(fold(spiking_actor()), origin=origin_of(policy)).save(tmp_path / "policy.npz")
    assert deploy.load(tmp_path / "policy.npz", compiled=False).info["observation"]["pieces"] == pieces_of(ARM)
