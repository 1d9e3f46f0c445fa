"""``recalibrate``: exact statistics of all batches together, for any model, and all or nothing."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from carebn import SpikingActor
from carebn.norm import CaReBN, NoNorm, Norm, recalibrate

from .helpers import NORM_NAMES, affine_of, assert_unchanged, close, drifting_batches, random_norm, snapshot
from .reference import moments, statistics, train_output

T, F = 4, 5
SIZES = (3, 11, 6)
any_norm = pytest.mark.parametrize("name", NORM_NAMES)


def tensors(arrays):
    return [torch.tensor(x) for x in arrays]


def trained(module, seed=21):
    """With moving statistics, error estimates and counters that are not those of a fresh module."""
    for x in drifting_batches(seed, 3, T, F, (7,)):
        module(torch.tensor(x))
    return module


def together(batches):
    return np.concatenate(batches, axis=1)


def modes(model):
    return [module.training for module in model.modules()]


# --- exact statistics ------------------------------------------------------------------------------------------------


@any_norm
def test_one_layer_gets_the_statistics_of_all_batches_together(name):
    """Population variance, and a sample counts the same in a small batch as in a large one."""
    batches = drifting_batches(1, 3, T, F, SIZES)
    module = trained(random_norm(name, F, T))
    assert recalibrate(module, tensors(batches)) == 1
    mean, var = statistics(name, together(batches))
    close(module.running_mean, mean)
    close(module.running_var, var)


@any_norm
def test_deeper_layers_see_batches_normalised_by_their_own_statistics(name):
    batches = drifting_batches(1, 3, T, F, SIZES)
    first, linear, second = random_norm(name, F, T, 1), nn.Linear(F, 4).double(), random_norm(name, 4, T, 2)
    model = nn.Sequential(first, nn.Tanh(), linear, second)
    weight, bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
    hidden = [np.tanh(train_output(name, x, affine_of(first))) @ weight.T + bias for x in batches]
    assert recalibrate(model, tensors(batches)) == 2
    for module, data in ((first, batches), (second, hidden)):
        mean, var = statistics(name, together(data))
        close(module.running_mean, mean)
        close(module.running_var, var)


@pytest.mark.parametrize("coding", ["deterministic", "analogue"])
@any_norm
def test_inside_a_spiking_actor(name, coding):
    """The actor's fused path must report what a listener at each normaliser's input sees."""
    torch.manual_seed(3)
    actor = SpikingActor(3, 2, norm=name, hidden=(6, 5), time_steps=T, encoder_options={"coding": coding}).double()
    batches = [torch.randn(size, 3, dtype=torch.float64) for size in SIZES]

    watched = deepcopy(actor).eval()
    seen = []
    for layer in watched.layers:
        layer.norm.train()
        inputs = []
        layer.norm.register_forward_hook(lambda module, args, output, inputs=inputs: inputs.append(args[0].detach()))
        seen.append(inputs)
    with torch.no_grad():
        for batch in batches:
            watched(batch)

    assert recalibrate(actor, batches) == 3
    for layer, inputs in zip(actor.layers, seen, strict=True):
        mean, var = statistics(name, together([x.numpy() for x in inputs]))
        close(layer.norm.running_mean, mean)
        close(layer.norm.running_var, var)


def test_step_by_step_calls_are_pooled():
    """A normaliser called once per time step sees T·batches small batches; together they are the same samples."""

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = random_norm("care", F, T)
            self.foreign = nn.BatchNorm1d(F).double()

        def forward(self, x):
            return torch.stack([self.norm(step) + self.foreign(step) for step in x])

    batches = drifting_batches(1, 3, T, F, SIZES)
    model = Loop()
    assert recalibrate(model, tensors(batches)) == 2
    mean, var = moments(together(batches))
    for module in (model.norm, model.foreign):
        close(module.running_mean, mean)
        close(module.running_var, var)


@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_a_large_mean_does_not_drown_the_variance(offset):
    """Pooling Σx² and subtracting the squared mean would lose twice the digits of the offset."""
    batches = [x + offset for x in drifting_batches(1, 3, T, F, SIZES)]
    module = random_norm("care", F, T)
    recalibrate(module, tensors(batches))
    close(module.running_var, moments(together(batches))[1], 1e-7)


def test_it_does_not_matter_what_the_statistics_were():
    batches = tensors(drifting_batches(1, 3, T, F, SIZES))
    fresh = random_norm("care", F, T)
    used = trained(deepcopy(fresh))
    recalibrate(fresh, batches)
    recalibrate(used, batches)
    assert torch.equal(fresh.running_mean, used.running_mean)
    assert torch.equal(fresh.running_var, used.running_var)


# --- foreign batch norms ---------------------------------------------------------------------------------------------


def torch_bn1d():
    return nn.BatchNorm1d(F), lambda size: (size, F), (0,)


def torch_bn1d_sequence():
    return nn.BatchNorm1d(F), lambda size: (size, F, 3), (0, 2)


def torch_bn2d():
    return nn.BatchNorm2d(F), lambda size: (size, F, 3, 2), (0, 2, 3)


def spikingjelly_bn1d():
    layer = pytest.importorskip("spikingjelly.activation_based.layer")
    return layer.BatchNorm1d(F, step_mode="m"), lambda size: (T, size, F), (0, 1)


def spikingjelly_tdbn():
    layer = pytest.importorskip("spikingjelly.activation_based.layer")
    return layer.ThresholdDependentBatchNorm1d(1.0, 0.5, F), lambda size: (T, size, F), (0, 1)


def spikingjelly_tebn():
    layer = pytest.importorskip("spikingjelly.activation_based.layer")
    return layer.TemporalEffectiveBatchNorm1d(T, F), lambda size: (T, size, F), (0, 1)


FOREIGN = [torch_bn1d, torch_bn1d_sequence, torch_bn2d, spikingjelly_bn1d, spikingjelly_tdbn, spikingjelly_tebn]


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("make", FOREIGN)
def test_foreign_batch_norms(make, momentum):
    """Whatever their layout; their momentum and counter are back afterwards."""
    module, shape, axes = make()
    module = module.double()
    module.momentum = momentum
    generator = torch.Generator().manual_seed(0)
    batches = [2 + 3 * torch.randn(shape(size), generator=generator, dtype=torch.float64) for size in SIZES]
    module(batches[0])
    storage = module.running_mean.data_ptr(), module.running_var.data_ptr()
    assert recalibrate(module, batches) == 1
    per_feature = np.concatenate(
        [np.moveaxis(x.numpy(), [a for a in range(x.ndim) if a not in axes], [-1]).reshape(-1, F) for x in batches]
    )
    close(module.running_mean, per_feature.mean(0))
    close(module.running_var, per_feature.var(0))
    assert module.momentum == momentum
    assert int(module.num_batches_tracked) == 1
    assert not module._forward_hooks
    assert storage == (module.running_mean.data_ptr(), module.running_var.data_ptr())


def test_a_deeper_foreign_batch_norm_sees_batch_statistics_upstream():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(F), nn.Tanh(), nn.BatchNorm1d(F)).double()
    batches = [x[0] for x in drifting_batches(1, 3, 1, F, SIZES)]
    assert recalibrate(model, tensors(batches)) == 2
    hidden = np.concatenate([np.tanh((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)) for x in batches])
    close(model[2].running_mean, hidden.mean(0))
    close(model[2].running_var, hidden.var(0))


def test_spikingjelly_bntt_with_its_own_reset_before_each_batch():
    """A model that keeps a state between calls is prepared by ``forward``."""
    layer = pytest.importorskip("spikingjelly.activation_based.layer")
    module = layer.BatchNormThroughTime1d(T, F, step_mode="m").double()

    def forward(model, batch):
        model.reset()
        return model(batch)

    batches = drifting_batches(1, 3, T, F, SIZES)
    assert recalibrate(module, tensors(batches), forward=forward) == T
    mean, var = statistics("bntt", together(batches))
    for t, step in enumerate(module.bn_list):
        close(step.running_mean, mean[t])
        close(step.running_var, var[t])


def test_a_foreign_batch_norm_that_is_called_by_keyword():
    """``bn(input=x)`` is a legal call; the listener must not count on a positional argument."""

    class ByKeyword(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(F).double()

        def forward(self, x):
            return self.norm(input=x)

    model = ByKeyword()
    batches = [x[0] for x in drifting_batches(1, 3, 1, F, SIZES)]
    assert recalibrate(model, tensors(batches)) == 1
    close(model.norm.running_var, np.concatenate(batches).var(0))


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, CaReBN])
def test_a_batch_norm_without_statistics_has_nothing_to_replace(kind):
    """The one behind it sees what it makes of each batch."""
    model = nn.Sequential(kind(F, track_running_stats=False), nn.Linear(F, F), kind(F)).double()
    batches = [5 + torch.randn(size, F, dtype=torch.float64) for size in (4, 9)]
    assert recalibrate(model, batches) == 1
    shown = torch.cat([model[1](torch.nn.functional.batch_norm(x, None, None, training=True)) for x in batches])
    close(model[2].running_mean, shown.mean(0), 1e-8)
    close(model[2].running_var, shown.var(0, correction=0), 1e-8)
    assert model[0].running_mean is None


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, CaReBN])
def test_statistics_that_do_not_follow_are_recalibrated_too(kind):
    """With ``track_running_stats`` switched off later they are still those of inference."""
    module = kind(F).double()
    module.track_running_stats = False
    x = 5 + torch.randn(9, F, dtype=torch.float64)
    assert recalibrate(module, [x]) == 1
    close(module.running_mean, x.mean(0))
    close(module.running_var, x.var(0, correction=0))
    assert not module.track_running_stats


# --- what stays as it was --------------------------------------------------------------------------------------------


def mixed_model():
    """Ours, foreign, and a layer that must be in evaluation mode meanwhile; some training, some not."""
    torch.manual_seed(0)
    model = nn.Sequential(random_norm("care", F, T), nn.Dropout(0.5), nn.Linear(F, F), random_norm("tab", F, T))
    model.append(nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(F))).double()
    trained(model)
    model.train()
    model[1].eval()
    model[3].eval()
    model[4].eval()
    return model


def test_error_estimates_counters_and_parameters_are_kept():
    model = mixed_model()
    before = snapshot(model)
    assert before["0.error_mean"].all()
    assert int(before["0.num_batches_tracked"]) == 3
    recalibrate(model, tensors(drifting_batches(1, 3, T, F, SIZES)))
    for name, value in model.state_dict().items():
        moved = name.rpartition(".")[2] in ("running_mean", "running_var")
        assert torch.equal(value, before[name]) != moved, name


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_every_module_is_restored(training):
    model = mixed_model()
    model[0].train(training)
    before = modes(model)
    recalibrate(model, tensors(drifting_batches(1, 3, T, F, SIZES)))
    assert modes(model) == before


def test_dropout_is_off_and_norms_use_batch_statistics_meanwhile():
    model = nn.Sequential(random_norm("care", F, T), nn.Dropout(0.5), random_norm("bn", F, T))
    seen = []
    recalibrate(
        model,
        tensors(drifting_batches(1, 2, T, F, SIZES)),
        progress=lambda done, total: seen.append([module.training for module in model]),
    )
    assert seen == [[True, False, True]] * 2


def test_dropout_does_not_disturb_what_is_downstream():
    batches = tensors(drifting_batches(1, 3, T, F, SIZES))
    with_dropout = nn.Sequential(nn.Dropout(0.9), random_norm("care", F, T))
    without = nn.Sequential(nn.Identity(), random_norm("care", F, T))
    recalibrate(with_dropout, batches)
    recalibrate(without, batches)
    assert torch.equal(with_dropout[1].running_var, without[1].running_var)


def test_no_graph_is_kept():
    model = nn.Sequential(nn.Linear(F, F).double(), random_norm("care", F, T))
    recalibrate(model, tensors(drifting_batches(1, 2, T, F, SIZES)))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model[1].running_mean.requires_grad


def test_buffers_keep_their_storage():
    module = random_norm("care", F, T)
    before = module.running_mean.data_ptr(), module.running_var.data_ptr()
    recalibrate(module, tensors(drifting_batches(1, 2, T, F, SIZES)))
    assert (module.running_mean.data_ptr(), module.running_var.data_ptr()) == before


def test_training_goes_on_normally_afterwards():
    """The recording has ended: the next training forward updates, and error estimates go on from where they were."""
    module = trained(random_norm("care", F, T))
    error = module.error_mean.clone()
    batches = drifting_batches(1, 3, T, F, SIZES)
    recalibrate(module, tensors(batches))
    mean = module.running_mean.clone()
    module(torch.tensor(batches[0]))
    expected = 0.2 * error + 0.8 * (torch.tensor(moments(batches[0])[0]) - mean) ** 2
    close(module.error_mean, expected)
    assert int(module.num_batches_tracked) == 4
    assert not torch.equal(module.running_mean, mean)


# --- when something goes wrong ---------------------------------------------------------------------------------------


def failing_batches(batches):
    yield from batches
    raise RuntimeError("the replay buffer is gone")


def fail_in_progress(done, total):
    if done == 2:
        raise RuntimeError("the progress bar broke")


def test_a_failure_while_reading_batches_leaves_everything_as_it_was():
    model = mixed_model()
    model[4][1].momentum = 0.3
    before, before_modes = snapshot(model), modes(model)
    with pytest.raises(RuntimeError, match="the replay buffer is gone"):
        recalibrate(model, failing_batches(tensors(drifting_batches(1, 3, T, F, SIZES))))
    assert_unchanged(model, before)
    assert modes(model) == before_modes
    assert model[4][1].momentum == 0.3
    assert not model[4][1]._forward_hooks


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_inside_the_model_leaves_everything_as_it_was(error):
    model = mixed_model()
    calls = []

    def fail_later(module, args, output):
        calls.append(module)
        if len(calls) == 2:
            raise error("stop")

    handle = model[2].register_forward_hook(fail_later)
    before, before_modes = snapshot(model), modes(model)
    with pytest.raises(error, match="stop"):
        recalibrate(model, tensors(drifting_batches(1, 3, T, F, SIZES)))
    handle.remove()
    assert_unchanged(model, before)
    assert modes(model) == before_modes
    model.train()
    model(torch.tensor(drifting_batches(1, 1, T, F, SIZES)[0]))
    assert int(model[0].num_batches_tracked) == 4  # nobody is recording any more


def test_a_failure_in_the_progress_callback_leaves_everything_as_it_was():
    model = mixed_model()
    before, before_modes = snapshot(model), modes(model)
    with pytest.raises(RuntimeError, match="the progress bar broke"):
        recalibrate(model, tensors(drifting_batches(1, 3, T, F, SIZES)), progress=fail_in_progress)
    assert_unchanged(model, before)
    assert modes(model) == before_modes


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("kind", [*NORM_NAMES, "foreign", "actor"])
def test_a_non_finite_batch_is_refused_and_changes_nothing(kind, value):
    batches = tensors(drifting_batches(1, 3, T, F, SIZES))
    if kind == "actor":
        model, batches = SpikingActor(F, 2, hidden=(4,), time_steps=T).double(), [x[0] for x in batches]
    elif kind == "foreign":
        model, batches = nn.BatchNorm1d(F).double(), [x[0] for x in batches]
    else:
        model = trained(random_norm(kind, F, T))
    batches[1].view(-1)[7] = value
    before, before_modes = snapshot(model), modes(model)
    with pytest.raises(ValueError, match="NaN or infinity"):
        recalibrate(model, batches)
    assert_unchanged(model, before)
    assert modes(model) == before_modes


def test_a_foreign_norm_upstream_of_a_non_finite_one_is_unchanged_too():
    """All or nothing: also those whose own statistics would have been fine."""

    class Breaks(nn.Module):
        def forward(self, x):
            return x / 0

    model = nn.Sequential(nn.BatchNorm1d(F), Breaks(), nn.BatchNorm1d(F)).double()
    before = snapshot(model)
    with pytest.raises(ValueError, match="NaN or infinity at a BatchNorm1d"):
        recalibrate(model, [x[0] for x in tensors(drifting_batches(1, 2, 1, F, SIZES))])
    assert_unchanged(model, before)


@pytest.mark.parametrize("empty", [[], iter(()), ()])
def test_no_batches_at_all(empty):
    model = mixed_model()
    before, before_modes = snapshot(model), modes(model)
    with pytest.raises(ValueError, match="no batches"):
        recalibrate(model, empty)
    assert_unchanged(model, before)
    assert modes(model) == before_modes


# --- the call --------------------------------------------------------------------------------------------------------


def test_progress_with_a_length():
    calls = []
    batches = tensors(drifting_batches(1, 3, T, F, SIZES))
    recalibrate(random_norm("care", F, T), batches, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_a_generator_works_and_has_no_total():
    calls = []
    arrays = drifting_batches(1, 3, T, F, SIZES)
    module = random_norm("care", F, T)
    recalibrate(module, (x for x in tensors(arrays)), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, None), (2, None), (3, None)]
    close(module.running_mean, moments(together(arrays))[0])


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_batch_may_be_several_arguments(kind):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = random_norm("care", F, T)

        def forward(self, x, y):
            return self.norm(x + y)

    arrays = drifting_batches(1, 3, T, F, SIZES)
    model = Sum()
    recalibrate(model, [kind((x, 2 * x)) for x in tensors(arrays)])
    close(model.norm.running_var, 9 * moments(together(arrays))[1])


def test_a_data_loader():
    x = torch.randn(20, F, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=8)
    module, calls = CaReBN(F).double(), []
    recalibrate(module, loader, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (3, 3)
    close(module.running_mean, x.mean(0))
    close(module.running_var, x.var(0, correction=0))


def test_it_counts_the_layers_that_were_reached():
    """A layer that the batches never reach keeps its statistics and is not counted."""

    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = random_norm("care", F, T), trained(random_norm("bn", F, T))

        def forward(self, x):
            return self.used(x)

    model = Half()
    before = snapshot(model.unused)
    batches = tensors(drifting_batches(1, 2, T, F, SIZES))
    assert recalibrate(model, batches) == 1
    assert_unchanged(model.unused, before)
    assert recalibrate(mixed_model(), batches) == 3
    assert recalibrate(nn.Sequential(NoNorm(), nn.Linear(F, F).double()), batches) == 0


def test_a_shared_normaliser_counts_once_and_pools_all_its_calls():
    norm = random_norm("care", F, T)
    model = nn.Sequential(norm, norm)
    [x] = drifting_batches(1, 1, T, F, (9,))
    assert recalibrate(model, [torch.tensor(x)]) == 1
    y = train_output("care", x, affine_of(norm))
    close(norm.running_mean, moments(together([x, y]))[0])


@any_norm
def test_inference_uses_the_new_statistics(name):
    """Recalibrated on one batch, inference on that batch equals training on it."""
    [x] = drifting_batches(1, 1, T, F, (9,))
    module = trained(random_norm(name, F, T)).eval()
    recalibrate(module, [torch.tensor(x)])
    assert not module.training
    close(module(torch.tensor(x)), train_output(name, x, affine_of(module)))


def test_every_normaliser_of_ours_derives_from_the_common_base():
    """What ``recalibrate`` looks for."""
    assert all(isinstance(random_norm(name, F, T), Norm) for name in NORM_NAMES)
