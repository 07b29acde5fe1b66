"""Starts `rlt` many times for the price of one import of torch.

A run in a process of its own costs seconds of imports. This program imports once and then forks a
child for each command line that it reads: a JSON list of arguments and an environment.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time


def main() -> None:
    import peft  # noqa: F401
    import starlette.applications  # noqa: F401
    import tinker  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401
    import uvicorn  # noqa: F401

    import rlt.cli.run  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(command)
        if command.get("wait", True):
            print(os.waitpid(pid, 0)[1], flush=True)
        else:
            print(pid, flush=True)
            print(os.waitpid(pid, 0)[1], flush=True)


def _child(command: dict[str, object]) -> None:
    from rlt.cli import main as rlt

    os.environ.update(command["env"])  # type: ignore[arg-type]
    os.chdir(str(command["cwd"]))
    for descriptor, name in ((1, "out"), (2, "err")):
        opened = os.open(str(command[name]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)
    delay = float(os.environ.get("KILL_AFTER", "0"))
    if delay:
        threading.Thread(target=_kill_after, args=(delay,), daemon=True).start()
    code = 1
    try:
        rlt(command["arguments"])  # type: ignore[arg-type]
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        os._exit(code)


def _kill_after(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), 9)


if __name__ == "__main__":
    main()
