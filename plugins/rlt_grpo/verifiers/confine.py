"""Run a command with little to lose. A script: its own process, so that it may give up everything.

    python -I confine.py '{"user": 61500, "limits": {...}, "home": "…", "read": ["…"]}' command …

In order: resource limits; new network and process namespaces, so that there is no network and
whatever the command leaves behind ends with it; another user and no groups, when we are root; no
new privileges; and by Landlock no file but its own folder to write, and the interpreter's to read.
What this system does not offer is left out and named on standard error, in a line `unconfined: …`.
Without a command that is all that happens.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

_NEW_USER, _NEW_PROCESSES, _NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
_NO_NEW_PRIVILEGES = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EVERY_RIGHT = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1,
                5: (1 << 16) - 1}  # fmt: skip
"""Landlock version -> all rights to files that it knows."""
_READING = 0b1101
"""To execute, to read a file, to list a folder."""
_DEVICE = 0b0110
"""To read and write a file."""
_TCP = 0b11
"""To bind and to connect."""

CANNOT_START = 125
"""The exit code when the command could not be run."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def main() -> None:
    """Confine this process and become the command."""
    order, command = json.loads(sys.argv[1]), sys.argv[2:]
    os.chdir(order["home"])
    # namespaces first: making them needs what is given up afterwards
    missing = [name for name, attempt in _steps(order) if not attempt()]
    if missing:
        print("unconfined:", ", ".join(missing), file=sys.stderr, flush=True)
    if not command:
        return
    child = os.fork()  # the first process of the new namespace; the others end with it
    if child == 0:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            os.environ.pop("LC_CTYPE", None)  # Python sets it by itself where there is no locale
            os.execv(command[0], command)  # noqa: S606 - that is the purpose
        except OSError as error:
            print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(CANNOT_START)
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _steps(order: dict[str, Any]) -> list[tuple[str, Callable[[], bool]]]:
    return [
        ("resource limits", lambda: _limit(order["limits"])),
        ("network", _leave_network),
        ("leftover processes", lambda: _unshare(_NEW_PROCESSES)),
        ("another user", lambda: _become(order["user"])),
        ("no new privileges", lambda: _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0),
        ("files of this user", lambda: _landlock(order["home"], order["read"])),
    ]


def _limit(limits: dict[str, int]) -> bool:
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(number)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)  # noqa: PLW2901
        resource.setrlimit(number, (value, value))
    return True


def _unshare(flags: int) -> bool:
    return sys.platform == "linux" and bool(_libc.unshare(flags) == 0)


def _leave_network() -> bool:
    """Enter an empty network; who is not root needs a user namespace to be allowed to."""
    if os.geteuid() == 0:
        return _unshare(_NEW_NETWORK)
    user, group = os.getuid(), os.getgid()
    if not _unshare(_NEW_USER | _NEW_NETWORK):
        return False
    # unmapped, this user could create no file
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                       ("gid_map", f"{group} {group} 1")):  # fmt: skip
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)
    return True


def _become(user: int | None) -> bool:
    if user is None:
        return False
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    return True


def _landlock(home: str, readable: list[str]) -> bool:
    """Allow this process and its children `home`, and to read `readable`; nothing else."""
    if sys.platform != "linux":
        return False
    version = _libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    every = _EVERY_RIGHT[min(version, 5)]
    # struct landlock_ruleset_attr: rights to files, and from version 4 to the network
    rights = struct.pack("QQ", every, _TCP) if version >= 4 else struct.pack("Q", every)
    rules = _libc.syscall(_CREATE_RULESET, rights, len(rights), 0)
    _allow(rules, home, every)
    for path in readable:
        _allow(rules, path, _READING)
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        _allow(rules, device, _DEVICE & every)
    confined = bool(_libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    os.close(rules)
    return confined


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 - pathlib is slow to import
        rights &= 0b111
    _libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", rights, place), 0)
    os.close(place)


if __name__ == "__main__":
    main()
