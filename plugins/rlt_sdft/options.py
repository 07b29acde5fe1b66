"""The options of `-o`, and the texts that they may name a file for."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import rlt

REWRITE = (
    "You are the teacher. The expert demonstration is below. Rewrite it in your own on-policy "
    "style. Keep the same facts and tools.\n\nDEMO:\n{completion}"
)
"""What the teacher is told in `mode=rewrite`."""

DISTILL = (
    "{prompt}\n\nThis is an example for a response to the question:\n{completion}\n\n"
    "Now answer with a response of your own, including the thinking process."
)
"""What the teacher is told in the other modes (Shenfeld et al.)."""


TEXTS = ("system", "teacher_system", "teacher_prompt")
"""The options that may name a file."""


def _choice(default: str, *others: str, description: str) -> rlt.JSON:
    return {"enum": [default, *others], "default": default, "description": description}


def _number(default: int, least: int, description: str) -> rlt.JSON:
    return {"type": "integer", "minimum": least, "default": default, "description": description}


def _text(description: str) -> rlt.JSON:
    return {"type": "string", "default": "", "description": f"{description}; @FILE reads it"}


OPTIONS: dict[str, rlt.JSON] = {
    "mode": _choice(
        "rewrite", "topk", "reverse", "sampled",
        description="learn the teacher's rewrite, or its view of the student's own answer",
    ),
    "teacher": _choice(
        "base", "current", "sync",
        description="which weights teach: those before step 0, the student's own, or a copy",
    ),
    "sync_every": _number(10, 1, "steps between new weights for teacher=sync"),
    "checks": _choice(
        "on", "off",
        description="off learns every rewrite, whatever it is; small models collapse so",
    ),
    "fallback": _choice(
        "demo", "drop",
        description="what replaces a rejected rewrite: the demonstration, or nothing",
    ),
    "k": _number(20, 1, "how many of the teacher's likeliest tokens topk and reverse learn from"),
    "skip": _number(3, 0, "first tokens of an answer left out of the loss, but for rewrites"),
    "reduction": _choice(
        "token-mean", "sequence-mean", "sum",
        description="how the tokens of a step are averaged in the gradient",
    ),
    "render": _choice(
        "chat", "raw", description="raw uses no chat template, as the original loop did"
    ),
    "system": _text("a system prompt for rows that have none"),
    "teacher_system": _text("a system prompt for the teacher"),
    "teacher_prompt": _text("what the teacher is told, with {prompt} and {completion}"),
    "demo_every": _number(5, 0, "steps between readings of the demonstrations' likelihood; 0 none"),
}  # fmt: skip


class _Texts(dict[str, str]):
    """The options' texts, read once: a file that changes meanwhile changes no run."""


def text_of(run: rlt.Run, name: str) -> str:
    """Return an option's text, from its file when it begins with @.

    A resumed run keeps the text that it began with.

    :raises rlt.UsageError: when there is no such file, or nothing in it.
    """
    texts = run.state(_Texts)
    if name not in texts:
        value = str(run.options[name])
        kept = _kept(run).get(value)
        texts[name] = _read(name, value) if kept is None else kept
    return texts[name]


def keep_texts(run: rlt.Run) -> None:
    """Write the files' texts down for a resume, and say where a file differs from what is used."""
    files = {name: value for name in TEXTS if (value := str(run.options[name])).startswith("@")}
    for name, value in files.items():
        with contextlib.suppress(rlt.UsageError):  # it is gone, and not needed
            if _read(name, value) != text_of(run, name):
                run.log.warning("the file has changed; the run keeps its text", option=name)
    if files:
        texts = _kept(run) | {value: text_of(run, name) for name, value in files.items()}
        _file(run).write_text(json.dumps(texts, indent=2, ensure_ascii=False) + "\n", "utf-8")
    if "{completion}" not in teacher_prompt(run):
        run.log.warning("the teacher's prompt has no {completion}: it shows no demonstration")


def _file(run: rlt.Run) -> Path:
    return run.directory.path / "prompts.json"


def _kept(run: rlt.Run) -> dict[str, str]:
    path = _file(run)
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def _read(name: str, value: str) -> str:
    if not value.startswith("@"):
        return value
    try:
        text = Path(value[1:]).read_text("utf-8")
    except OSError as error:
        raise rlt.UsageError(f"-o {name}={value}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise rlt.UsageError(f"-o {name}={value}: {error}") from None
    if not text.strip():
        raise rlt.UsageError(f"-o {name}={value}: the file is empty")
    return text


def teacher_prompt(run: rlt.Run) -> str:
    """Return the teacher's prompt, the mode's own when none is given."""
    own = REWRITE if run.options["mode"] == "rewrite" else DISTILL
    return text_of(run, "teacher_prompt") or own
