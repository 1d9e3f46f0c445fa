"""``carebn watch``."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from carebn.commands.consent import Consent
from carebn.limits import check_episodes
from carebn.measure.spikes import decide
from carebn.show.counter import Counter
from carebn.show.drawn_environment import DrawnEnvironment
from carebn.show.film import Film, format_of
from carebn.show.outputs import writable_file
from carebn.show.screen import Controls, Screen
from carebn.training.checkpoint import unfinished
from carebn.training.environment import check_step, reset, spaces_of, step
from carebn.training.policy import Which, load

SLOWEST, FASTEST = 0.001, 1000.0
LONGEST = 86_400  # seconds of film
USUAL_RATE = 30.0  # decisions per second, where an environment does not say


@dataclass(frozen=True)
class Config(Consent):
    """Film a policy at work: the environment, the spikes of every layer, the action and the return."""

    run: tyro.conf.Positional[Path]
    """Run directory, or a name of the zoo."""
    which: Which = "last"
    """Its policy after the last step, or that of the best evaluation on the way."""
    out: Path = Path("film.mp4")
    """The film, .mp4 or .gif."""
    episodes: int = 1
    """Noise-free episodes, one after the other."""
    seed: int = 1_000_000
    """Seed of the first episode; the others follow. The default is outside of what training uses."""
    speed: float = 1.0
    """1 is the environment's own time; 0.25 shows it four times slower."""
    seconds: float | None = None
    """Longest film; the last episode is cut there. Default: 60, of a GIF, which is large, 10."""
    fine: bool = False
    """MuJoCo with shadows, reflections and smooth edges; ten times slower without a graphics card."""
    quiet: bool = False
    """No progress display."""


def run(config: Config) -> int:
    check_episodes(config.episodes, config.seed)
    form = format_of(config.out)
    seconds = form.seconds if config.seconds is None else config.seconds
    for name, value in (("speed", config.speed), ("seconds", seconds)):
        if not 0 < value < float("inf"):
            raise ValueError(f"--{name} must be above zero and finite, got {value}")
    if not SLOWEST <= config.speed <= FASTEST:
        raise ValueError(f"--speed must lie between {SLOWEST:g} and {FASTEST:g}, got {config.speed:g}")
    if seconds > LONGEST:
        raise ValueError(f"--seconds must be at most {LONGEST:,}, which is a day, got {seconds:g}")
    policy = load(config.run, config.which, trust=config.word)
    writable_file(config.out)
    warning = unfinished(config.run, policy.config)
    if warning:
        Console(stderr=True).print(f"warning: {warning}", highlight=False, soft_wrap=True)
    env_id = policy.config.env_id
    drawn = DrawnEnvironment(env_id, policy.make_env, size=620 * form.size[0] // 1920, fine=config.fine)
    every, fps = form.timing((drawn.rate or USUAL_RATE) * config.speed)
    controls = Controls.of(drawn.env, spaces_of(drawn.env, env_id))
    most = max(1, int(seconds * fps))
    screen: Screen | None = None
    reset(drawn.env, env_id, config.seed)
    drawn.look()  # what cannot be drawn is told before a film is begun
    with Film(config.out, fps, form.size) as film, Counter("frames", most, config.quiet) as counter:
        for episode in range(config.episodes):
            obs = reset(drawn.env, env_id, config.seed + episode)
            check_step(env_id, obs, 0.0)
            score, over, decisions = 0.0, False, 0
            state = None  # nothing is carried from one episode to the next
            while not over and film.frames < most:
                decision = decide(policy, obs[None], state)
                state = decision.state
                if screen is None:
                    title = policy.title()
                    screen = Screen(form.size, title, decision.populations, controls, drawn.rate, config.speed)
                if decisions == 0:
                    screen.clear()
                screen.add(decision)
                if decisions % every == 0:
                    note = f"episode {episode + 1} of {config.episodes}" if config.episodes > 1 else ""
                    film.add(screen.frame(drawn.look(), score, decisions, note))
                    counter.advance()
                obs, reward, terminated, truncated = step(drawn.env, env_id, decision.action[0])
                check_step(env_id, obs, reward)
                score += reward
                decisions += 1
                over = terminated or truncated
            if screen is not None and film.frames < most:
                ending = "ended" if terminated else "time limit"
                film.add(screen.frame(drawn.look(), score, decisions, f"{ending} after {decisions} decisions"))
                counter.advance()
            more = "; --seconds takes more" if config.seconds is None else ""
            cut = "" if over else f", cut after {seconds:g} s of film{more}"
            counter.console.print(
                f"episode {episode + 1}: return {score:.1f} in {decisions} decisions{cut}",
                highlight=False,
                soft_wrap=True,
            )
            if not over:
                break
    drawn.env.close()
    print(f"film: {config.out} ({film.frames} frames, {film.frames / fps:.1f} s)")
    return 0
