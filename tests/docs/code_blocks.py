"""Code blocks of README and site: where they stand, what they ask for, and how their budgets are cut down."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TOP_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FENCE = re.compile(r"^ *(```+|~~~+)(.*?)$\n(.*?)^ *\1 *$", re.M | re.S)
SHELL, PYTHON = {"", "sh", "bash", "shell", "console"}, {"python", "py"}
SHOWN = {"text", "diff", "json", "toml", "yaml", "c"}  # to be read; a command in one of them is a mistake


class Block(NamedTuple):
    page: str
    line: int
    language: str
    title: str
    heading: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    top = [name for name in TOP_PAGES if (ROOT / name).exists()]
    return top + sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))


def blocks_of(page: str) -> list[Block]:
    return list(blocks_in((ROOT / page).read_text(), page))


def blocks_in(text: str, page: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        info = found[2].strip()
        directive = re.match(r"\{([\w-]+)\} *(\w*)", info)
        if directive and directive[1] not in ("code-block", "code-cell", "code"):
            continue  # Sphinx's: a table of contents, a note
        language = directive[2] if directive else (info.split() or [""])[0]
        title = re.search(r'title="([^"]+)"', info)
        before = text[: found.start()]
        headings = re.findall(r"^#+ (.+)$", FENCE.sub("", before), re.M)
        yield Block(page, before.count("\n") + 1, language, title[1] if title else "", (headings or [""])[-1], found[3])


def commands_of(text: str) -> list[list[str]]:
    """The words of each command; comments, continued lines and what goes before ``&&`` are read as a shell does."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="&|;")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, "&&"]:
            if word in ("&&", "|", ";", "||"):
                found += [words] if words else []
                words = []
            else:
                words.append(word)
    return found


# --- the rule by which budgets are cut --------------------------------------------------------------------------------


def few(steps: int) -> int:
    """Instead of so many steps: more where a page has more, so that what extends a run still extends it."""
    return min(steps, 40 + steps // 1000, 90)


# At most; and of what a page does not name, this is what a training run gets. Environments stay what they are.
SMALL = {"hidden": 8, "batch_size": 8, "eval_episodes": 1, "recalibration_batches": 2, "eval_max_steps": 30}
CAPS = {
    "eval_interval": 30, "learning_starts": 20, "random_steps": 20, "checkpoint_interval": 30, "episodes": 1,
    "max_steps": 30, "seconds": 0.2, "observations": 50, "qat": 2, "iterations": 2, "time_steps": 20, "steps": 2,
    **SMALL,
}  # fmt: skip
# What a command gets besides, if it has such an option and the page does not name it.
BESIDES = {
    "train": {**SMALL, "quiet": ""},
    "evaluate": {"episodes": 1, "max_steps": 30},
    "card": {"episodes": 1, "max_steps": 30},
    "energy": {"episodes": 1, "max_steps": 30, "quiet": ""},
    "watch": {"seconds": 0.2, "quiet": ""},
    "export": {"episodes": 1, "observations": 50, "tolerance": 0.01},
    "convert": {"episodes": 1, "max_steps": 30},
}


def cut_command(words: list[str]) -> list[str]:
    """``carebn`` and its words, with smaller numbers."""
    name, words = words[0], list(words)
    for i, word in enumerate(words[:-1]):
        option = word.removeprefix("--").replace("-", "_") if word.startswith("--") else ""
        if option == "total_timesteps":
            words[i + 1] = str(few(int(words[i + 1])))
        elif option in CAPS and (name, option) != ("convert", "time_steps"):  # which names what it writes
            words[i + 1] = str(min(float(words[i + 1]), CAPS[option])).removesuffix(".0")
    if "--sweep" in words:
        words[words.index("--sweep") + 1 :] = ["5", "10"]
    for option, value in BESIDES.get(name, {}).items():
        flag = f"--{option.replace('_', '-')}"
        if flag not in words:
            words += [flag, str(value)] if value != "" else [flag]
    if name == "train" and "--total-timesteps" not in words and "--env-id" in words:
        words += ["--total-timesteps", "60"]
    return words


class CutPython(ast.NodeTransformer):
    """The same for Python: numbers of steps and episodes in calls, and small networks where we train."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "learn" and node.args and isinstance(node.args[0], ast.Constant):
            node.args[0] = ast.Constant(few(node.args[0].value))
        for word in node.keywords:
            if isinstance(word.value, ast.Constant) and isinstance(word.value.value, int):
                if word.arg == "total_timesteps":
                    word.value = ast.Constant(few(word.value.value))
                elif word.arg in CAPS:
                    word.value = ast.Constant(min(word.value.value, CAPS[word.arg]))
        given = {word.arg for word in node.keywords}
        if None not in given and "run_dir" in given and name in ("train", "TD3", "DDPG", "SAC", "DQN"):
            more = SMALL | ({"total_timesteps": 60} if name == "train" else {})
            more = {key: (value,) if key == "hidden" else value for key, value in more.items() if key not in given}
            node.keywords += [ast.keyword(key, ast.Constant(value)) for key, value in more.items()]
        return node


def cut_python(text: str, where: str) -> ast.Module:
    return ast.fix_missing_locations(CutPython().visit(ast.parse(text, where)))
