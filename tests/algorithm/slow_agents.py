"""The four algorithms written anew from their papers, slowly: plain formulas, ``backward()``, Adam by hand.

Nothing here comes from the package but the starting weights.
"""

import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STATISTICS = ("running_mean", "running_var", "error_mean", "error_var")


def spike(x):
    """A step with the slope of a rectangle of half-width 0.5 and height 1."""
    line = x.clamp(-0.5, 0.5)
    return (x > 0).to(x.dtype) + line - line.detach()


class SlowNetwork:
    """Weights and statistics copied from one of ours, under the same names."""

    def __init__(self, ours):
        self.weights = {name: p.detach().clone().requires_grad_() for name, p in ours.named_parameters()}
        self.statistics = {name: b.clone() for name, b in ours.named_buffers() if name.rpartition(".")[2] in STATISTICS}
        self.steps = SlowNetwork.find_steps(ours)
        self.learning = True

    @staticmethod
    def find_steps(ours):
        return ours.layers[0].time_steps if hasattr(ours, "layers") else 1

    def parameters(self):
        return list(self.weights.values())

    def everything(self):
        return {name: w.detach() for name, w in self.weights.items()} | self.statistics

    def normalised(self, x, linear, norm):
        """x [T, B, in] through a Linear and the norm behind it, if there is one."""
        w = self.weights
        if f"{norm}.weight" not in w:
            return F.linear(x, w[f"{linear}.weight"], w[f"{linear}.bias"])
        s = self.statistics
        z = F.linear(x, w[f"{linear}.weight"])
        if self.learning:  # the bias cancels, but the statistics contain it
            mean, var = z.mean((0, 1)), z.var((0, 1), correction=0)
            self.follow(norm, (mean + w[f"{linear}.bias"]).detach(), var.detach(), z.shape[0], z.shape[1])
        else:
            mean, var = s[f"{norm}.running_mean"] - w[f"{linear}.bias"], s[f"{norm}.running_var"]
        return (z - mean) / torch.sqrt(var + 1e-5) * w[f"{norm}.weight"] + w[f"{norm}.bias"]

    def follow(self, norm, mean, var, steps, batch):
        s = self.statistics
        for name, value, noise in (("mean", mean, var / batch), ("var", var, 2 * var**2 / (batch - 1))):
            moving = f"{norm}.running_{name}"
            gap = value - s[moving]
            if f"{norm}.error_{name}" in s:  # the paper's Algorithm 1
                error = 0.2 * s[f"{norm}.error_{name}"] + 0.8 * gap**2
                s[f"{norm}.error_{name}"] = error
                s[moving] = s[moving] + error / (error + noise) * gap
            else:
                unbiased = steps * batch / (steps * batch - 1) if name == "var" else 1.0
                s[moving] = 0.9 * s[moving] + 0.1 * unbiased * value

    def relu_potential(self, x):
        body = sorted(int(n.split(".")[1]) for n, w in self.weights.items() if n.startswith("body.") and w.ndim == 2)
        x = x[None]
        for i in body:
            x = torch.relu(self.normalised(x, f"body.{i}", f"body.{i + 1}"))
        return F.linear(x[0], self.weights["head.weight"], self.weights["head.bias"])

    def spiking_layers(self, x, current_decay):
        """x [T, B, in] → spikes of the last layer; a decay of 0 makes LIF of CLIF."""
        count = len({n.split(".")[1] for n in self.weights if n.startswith("layers.")})
        for i in range(count):
            z = self.normalised(x, f"layers.{i}.linear", f"layers.{i}.norm")
            c = v = torch.zeros_like(z[0])
            spikes = []
            for t in range(self.steps):
                c = current_decay * c + z[t]
                h = 0.75 * v + c
                spikes.append(spike(h - 0.5))
                v = h * (1 - spikes[-1])
            x = torch.stack(spikes)
        return x


class SlowActor(SlowNetwork):
    def __init__(self, ours, low, high):
        super().__init__(ours)
        dtype = next(ours.parameters()).dtype
        self.low, self.high = torch.tensor(low, dtype=dtype), torch.tensor(high, dtype=dtype)

    @property
    def reach(self):
        return (self.high - self.low) / 2

    def potential(self, obs):
        w = self.weights
        if "head.weight" in w:
            return self.relu_potential(obs)
        a = torch.exp(-0.5 * ((torch.tanh(obs)[..., None] - w["encoder.mean"]) / w["encoder.std"]) ** 2).flatten(1)
        v, spikes = torch.zeros_like(a), []
        for _ in range(self.steps):
            v = v.detach() + a.detach()
            s = (v > 0.999).to(a.dtype)
            v = v - s
            spikes.append(s + a - a.detach())  # every spike has derivative one
        x = self.spiking_layers(torch.stack(spikes), 0.5)
        outputs, population = w["decoder.weight"].shape
        membrane = 0.0
        for t in range(self.steps):
            own = x[t].view(-1, outputs, population)
            membrane = membrane + (own * w["decoder.weight"]).sum(-1) + w["decoder.bias"]
        return membrane

    def squash(self, u):
        return torch.clamp((self.low + self.high) / 2 + self.reach * torch.tanh(u), self.low, self.high)

    def __call__(self, obs):
        return self.squash(self.potential(obs))


class SlowQNetwork(SlowNetwork):
    def __call__(self, obs):
        x = obs.to(next(iter(self.weights.values())).dtype) / 255
        if "head.weight" in self.weights:
            return self.relu_potential(x)
        spikes = self.spiking_layers(x.expand(self.steps, *x.shape), 0.0)
        return sum(F.linear(s, self.weights["readout.weight"], self.weights["readout.bias"]) for s in spikes)


class SlowCritic(nn.Module):
    """ReLU layers with weights copied from a plain critic of ours; the action enters at ``action_layer``."""

    def __init__(self, ours, action_layer=0):
        super().__init__()
        self.linears = nn.ModuleList()
        for layer in ours.layers:
            linear = nn.Linear(layer.in_features, layer.out_features, dtype=layer.weight.dtype)
            linear.load_state_dict(layer.state_dict())
            self.linears.append(linear)
        self.action_layer = action_layer

    def forward(self, obs, action):
        x = obs
        for i, linear in enumerate(self.linears):
            x = torch.cat([x, action], 1) if i == self.action_layer else x
            x = linear(x)
            x = x if linear is self.linears[-1] else torch.relu(x)
        return x[:, 0]


class SlowAdam:
    """Kingma & Ba's Algorithm 1; ``weight_decay`` is added to the gradient (coupled)."""

    def __init__(self, parameters, learning_rate, weight_decay=0.0):
        self.parameters = list(parameters)
        self.learning_rate, self.weight_decay, self.t = learning_rate, weight_decay, 0
        self.m = [torch.zeros_like(p) for p in self.parameters]
        self.v = [torch.zeros_like(p) for p in self.parameters]

    def minimise(self, loss):
        for p in self.parameters:
            p.grad = None
        loss.backward()
        self.t += 1
        with torch.no_grad():
            for i, p in enumerate(self.parameters):
                g = (torch.zeros_like(p) if p.grad is None else p.grad) + self.weight_decay * p
                self.m[i] = 0.9 * self.m[i] + 0.1 * g
                self.v[i] = 0.999 * self.v[i] + 0.001 * g**2
                m, v = self.m[i] / (1 - 0.9**self.t), self.v[i] / (1 - 0.999**self.t)
                p -= self.learning_rate * m / (v.sqrt() + 1e-8)


def follow_weights(target, online, tau):
    with torch.no_grad():
        for t, o in zip(target, online, strict=True):
            t.copy_(tau * o + (1 - tau) * t)


def follow_network(target, online, tau):
    """Weights and moving statistics, not the error estimates."""
    follow_weights(target.parameters(), online.parameters(), tau)
    for name in target.statistics:
        if ".running_" in name:
            target.statistics[name] = tau * online.statistics[name] + (1 - tau) * target.statistics[name]


def slow_target(ours, *bounds):
    network = SlowActor(ours, *bounds) if bounds else SlowQNetwork(ours)
    network.learning = False
    return network


def draw(data, batch, rng, dtype):
    """A uniform batch with replacement."""
    index = rng.integers(0, len(data[2]), batch)
    rows = [torch.from_numpy(np.asarray(column)[index]) for column in data]
    rows[4] = rows[4].to(dtype)
    return [row.to(dtype) if row.is_floating_point() else row for row in rows]


def noise_like(action, rng):
    return torch.from_numpy(rng.standard_normal(tuple(action.shape), dtype=np.float32))


class SlowTD3:
    def __init__(self, agent, low, high):
        o = self.options = agent.options
        self.actor = SlowActor(agent.actor, low, high)
        self.actor_target = slow_target(agent.actor_target, low, high)
        self.critics = [SlowCritic(agent.critic.single(i)) for i in (0, 1)]
        self.critic_targets = [SlowCritic(agent.critic_target.single(i)) for i in (0, 1)]
        self.actor_adam = SlowAdam(self.actor.parameters(), o.actor_learning_rate)
        self.critic_adams = [SlowAdam(c.parameters(), o.critic_learning_rate) for c in self.critics]
        self.t = 0
        self.clipped_noise = self.clipped_actions = 0

    def update(self, data, rng):
        o, dtype = self.options, self.actor.low.dtype
        s, a, r, s2, done = draw(data, o.batch_size, rng, dtype)
        epsilon = o.policy_noise * noise_like(a, rng)
        clipped = epsilon.clamp(-o.noise_clip, o.noise_clip)
        a2 = self.actor_target(s2).detach() + clipped * self.actor.reach
        kept = torch.minimum(torch.maximum(a2, self.actor.low), self.actor.high)
        self.clipped_noise += int((clipped != epsilon).sum())
        self.clipped_actions += int((kept != a2).sum())
        first, second = (target(s2, kept).detach() for target in self.critic_targets)
        y = torch.where(done.bool(), r, r + o.gamma * torch.minimum(first, second))
        losses = {"losses/qf_loss": 0.0, "losses/qf_values": 0.0}
        for critic, adam in zip(self.critics, self.critic_adams, strict=True):
            q = critic(s, a)
            loss = F.mse_loss(q, y)
            losses["losses/qf_loss"] += loss.detach()
            losses["losses/qf_values"] += q.detach().mean() / 2
            adam.minimise(loss)
        self.t += 1
        if self.t % o.policy_frequency == 0:
            loss = -self.critics[0](s, self.actor(s)).mean()
            self.actor_adam.minimise(loss)
            losses["losses/actor_loss"] = loss.detach()
            for target, critic in zip(self.critic_targets, self.critics, strict=True):
                follow_weights(target.parameters(), critic.parameters(), o.tau)
            follow_network(self.actor_target, self.actor, o.tau)
        return losses


class SlowDDPG:
    def __init__(self, agent, low, high):
        o = self.options = agent.options
        self.actor = SlowActor(agent.actor, low, high)
        self.actor_target = slow_target(agent.actor_target, low, high)
        self.critic, self.critic_target = (SlowCritic(c, 1) for c in (agent.critic, agent.critic_target))
        self.actor_adam = SlowAdam(self.actor.parameters(), o.actor_learning_rate)
        self.critic_adam = SlowAdam(self.critic.parameters(), o.critic_learning_rate, o.critic_weight_decay)

    def update(self, data, rng):
        o = self.options
        s, a, r, s2, done = draw(data, o.batch_size, rng, self.actor.low.dtype)
        y = r + o.gamma * (1 - done) * self.critic_target(s2, self.actor_target(s2)).detach()
        q = self.critic(s, a)
        critic_loss = ((y - q) ** 2).mean()
        self.critic_adam.minimise(critic_loss)
        actor_loss = -self.critic(s, self.actor(s)).mean()
        self.actor_adam.minimise(actor_loss)
        follow_weights(self.critic_target.parameters(), self.critic.parameters(), o.tau)
        follow_network(self.actor_target, self.actor, o.tau)
        return {
            "losses/qf_loss": critic_loss.detach(),
            "losses/qf_values": q.detach().mean(),
            "losses/actor_loss": actor_loss.detach(),
        }


class SlowSAC:
    def __init__(self, agent, low, high):
        o = self.options = agent.options
        self.actor = SlowActor(agent.gaussian.actor, low, high)
        self.log_std = copy.deepcopy(agent.gaussian.log_std)
        self.critics = [SlowCritic(agent.critic.single(i)) for i in (0, 1)]
        self.critic_targets = [SlowCritic(agent.critic_target.single(i)) for i in (0, 1)]
        self.log_alpha = agent.log_alpha["value"].detach().clone().requires_grad_()
        self.actor_adam = SlowAdam([*self.actor.parameters(), *self.log_std.parameters()], o.actor_learning_rate)
        self.critic_adams = [SlowAdam(c.parameters(), o.critic_learning_rate) for c in self.critics]
        self.alpha_adam = SlowAdam([self.log_alpha], o.alpha_learning_rate)

    def sample(self, obs, noise):
        std = self.log_std(obs).clamp(-20, 2).exp()
        mean = self.actor.potential(obs)
        u = mean + std * noise
        density = torch.exp(-0.5 * ((u - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
        slope = self.actor.reach * (1 - torch.tanh(u) ** 2)
        return self.actor.squash(u), (density / slope).log().sum(1)

    def update(self, data, rng):
        o = self.options
        s, a, r, s2, done = draw(data, o.batch_size, rng, self.actor.low.dtype)
        alpha = self.log_alpha.detach().exp()
        self.actor.learning = False  # the current policy, with moving statistics
        a2, log_prob2 = self.sample(s2, noise_like(a, rng))
        self.actor.learning = True
        first, second = (target(s2, a2) for target in self.critic_targets)
        y = (r + o.gamma * (1 - done) * (torch.minimum(first, second) - alpha * log_prob2)).detach()
        losses = {"losses/qf_loss": 0.0, "losses/qf_values": 0.0, "losses/alpha": alpha[0]}
        for critic, adam in zip(self.critics, self.critic_adams, strict=True):
            q = critic(s, a)
            loss = F.mse_loss(q, y)
            losses["losses/qf_loss"] += loss.detach()
            losses["losses/qf_values"] += q.detach().mean() / 2
            adam.minimise(loss)
        new, log_prob = self.sample(s, noise_like(a, rng))
        loss = (alpha * log_prob - torch.minimum(*(critic(s, new) for critic in self.critics))).mean()
        self.actor_adam.minimise(loss)
        losses["losses/actor_loss"] = loss.detach()
        entropy_target = -a.shape[1]
        loss = (self.log_alpha.exp() * (-log_prob.detach() - entropy_target)).mean()
        self.alpha_adam.minimise(loss)
        losses["losses/alpha_loss"] = loss.detach()
        for target, critic in zip(self.critic_targets, self.critics, strict=True):
            follow_weights(target.parameters(), critic.parameters(), o.tau)
        return losses


class SlowDQN:
    def __init__(self, agent):
        self.options = agent.options
        self.network, self.target = SlowQNetwork(agent.q_network), slow_target(agent.q_target)
        self.adam = SlowAdam(self.network.parameters(), self.options.learning_rate)
        self.t = 0

    def update(self, data, rng):
        o = self.options
        s, a, r, s2, done = draw(data, o.batch_size, rng, self.network.parameters()[0].dtype)
        best = self.target(s2).detach().max(1).values
        y = torch.stack([r[i] if done[i] else r[i] + o.gamma * best[i] for i in range(len(r))])
        q = self.network(s)[torch.arange(len(a)), a]
        loss = F.mse_loss(q, y)
        self.adam.minimise(loss)
        self.t += 1
        if self.t % o.target_interval == 0:
            follow_network(self.target, self.network, 1.0)
        return {"losses/td_loss": loss.detach(), "losses/q_values": q.detach().mean()}
