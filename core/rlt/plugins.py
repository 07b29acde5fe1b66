"""Find plugins, select those of a run, and say what is wrong with the others.

A plugin is whatever an entry point of the group `rlt` names, or a Python file given by path. Ours
come in by the same door. Importing one may fail: that is kept as data, so that one broken package
never stops `rlt --help`, `rlt check` or another plugin's run; only selecting it is an error.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import logging
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from rlt import hookspecs
from rlt.errors import UsageError
from rlt.types import PluginInfo

if TYPE_CHECKING:
    from rlt.dataset import DatasetTypes

DEFAULTS = ("dataset-types", "jsonl", "cross-entropy", "nll", "metrics", "ledger", "keep")
"""In every run, behind the selected plugins: what happens when none of those says otherwise."""


@dataclass(frozen=True)
class Plugin:
    """One plugin that was found, in working order or not."""

    name: str
    origin: str
    """Its distribution and version, or its file."""

    module: object | None = None
    failure: str = ""
    """Why it cannot be used; empty when it can."""

    @property
    def info(self) -> PluginInfo:
        """Its declaration; an empty one when it makes none."""
        info = getattr(self.module, "PLUGIN", None)
        return info if isinstance(info, PluginInfo) else PluginInfo(summary=self._first_line())

    @property
    def hooks(self) -> tuple[str, ...]:
        """The hooks it implements, in the order a run calls them."""
        return tuple(hook for hook in hookspecs.HOOKS if _implements(self.module, hook))

    def _first_line(self) -> str:
        return (getattr(self.module, "__doc__", None) or "").strip().split("\n")[0]


@functools.cache
def installed() -> Mapping[str, Plugin]:
    """All plugins that distributions register, by name. A broken one is listed with its failure."""
    by_name: dict[str, list[EntryPoint]] = defaultdict(list)
    for entry in sorted(entry_points(group="rlt"), key=lambda entry: entry.name):
        known = [(other.value, _origin(other)) for other in by_name[entry.name]]
        if (entry.value, _origin(entry)) not in known:  # one distribution, seen twice on sys.path
            by_name[entry.name].append(entry)
    return {name: _load_entries(name, entries) for name, entries in by_name.items()}


def find(name: str) -> Plugin:
    """Return the working plugin of this name, or of this `.py` file.

    :raises UsageError: when there is none, or it is broken; the message says why.
    """
    plugin = _load_file(Path(name)) if name.endswith(".py") else installed().get(name)
    if plugin is None:
        raise UsageError(_unknown(name))
    if plugin.failure:
        raise UsageError(f"plugin {plugin.name!r} ({plugin.origin}) is broken: {plugin.failure}")
    return plugin


def select(names: Sequence[str]) -> tuple[list[Plugin], pluggy.PluginManager]:
    """Return the named plugins and a manager in which they come before the defaults.

    :raises UsageError: for an unknown or broken one, or one named twice.
    """
    chosen = [find(name) for name in names]
    repeated = {p.name for p in chosen if sum(q.name == p.name for q in chosen) > 1}
    if repeated:
        raise UsageError(f"--plugin {sorted(repeated)[0]} is given twice; name each plugin once")
    manager = _new_manager()
    clash = next((p for p in chosen if p.name in DEFAULTS and p.module is not find(p.name).module),
                 None)  # fmt: skip
    if clash:
        raise UsageError(f"{clash.origin}: {clash.name!r} is the name of a part of rlt; rename it")
    defaults = [plugin for plugin in map(find, DEFAULTS) if plugin not in chosen]
    for plugin in [*defaults, *reversed(chosen)]:  # pluggy asks the last one registered first
        manager.register(plugin.module, plugin.name)
    return chosen, manager


def dataset_types(selected: Sequence[Plugin] = ()) -> DatasetTypes:
    """Return every dataset type that an installed or a selected plugin registers.

    One that cannot register its own is logged and left out; when it is selected, that is an error.

    :raises UsageError: when a selected plugin cannot register its types.
    """
    from rlt.dataset import DatasetTypes  # noqa: PLC0415 - only the commands that read data need it

    types = DatasetTypes()
    ours = list(map(find, DEFAULTS))
    others = [p for p in _working(installed().values()) if p not in ours and p not in selected]
    for plugin in [*ours, *selected, *others]:
        manager = _new_manager()
        manager.register(plugin.module, plugin.name)
        try:
            manager.hook.register_dataset_types(register=types)
        except Exception as error:  # anything that its author may have got wrong
            message = f"plugin {plugin.name!r} ({plugin.origin}) registers no types: {error}"
            if plugin in selected:
                raise UsageError(message) from error
            logging.getLogger(__name__).warning(message)
    return types


def _working(plugins: Iterable[Plugin]) -> Iterable[Plugin]:
    return (plugin for plugin in plugins if not plugin.failure)


def _new_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("rlt")
    manager.add_hookspecs(hookspecs)
    return manager


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"


def _load_entries(name: str, entries: list[EntryPoint]) -> Plugin:
    if len(entries) > 1:
        owners = " and ".join(_origin(entry) for entry in entries)
        return Plugin(name, owners, failure=f"registered by {owners}; uninstall one of them")
    return _load(name, _origin(entries[0]), entries[0].load)


def _load_file(path: Path) -> Plugin:
    if not path.is_file():
        raise UsageError(f"--plugin {path}: no such file")

    def load() -> ModuleType:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)  # dataclasses look their module up there
        spec.loader.exec_module(module)
        return module

    return _load(path.stem, str(path), load)


def _load(name: str, origin: str, load: Any) -> Plugin:
    try:
        module = load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may even call sys.exit while it is imported
        return Plugin(name, origin, failure=f"{type(error).__name__}: {_one_line(error)}")
    return Plugin(name, origin, module, failure=_misfit(name, module))


def _misfit(name: str, module: object) -> str:
    """Say why the hooks of `module` do not fit ours; empty when they do."""
    manager = _new_manager()
    try:
        manager.register(module, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        return _one_line(error) + _hint(str(error))
    except Exception as error:  # attributes that raise when pluggy looks at them
        return f"{type(error).__name__}: {_one_line(error)}"
    callers = manager.get_hookcallers(module)
    if not callers:
        return "it implements no hook; mark its functions with @rlt.hookimpl"
    for caller in callers:
        if caller.name not in hookspecs.ASYNC and inspect.iscoroutinefunction(
            getattr(module, caller.name, None)
        ):
            return f"{caller.name} cannot be async; only {', '.join(hookspecs.ASYNC)} may be"
    return ""


def _hint(message: str) -> str:
    words = re.findall(r"\w+", message)
    if set(words) & set(hookspecs.HOOKS):
        return ""  # the name is right, and something else is wrong
    close = (difflib.get_close_matches(word, hookspecs.HOOKS, 1, 0.75) for word in words)
    found = next(
        (match[0] for match, word in zip(close, words, strict=True) if match and match[0] != word),
        None,
    )
    return f"; did you mean the hook {found!r}?" if found else ""


def _implements(module: object, hook: str) -> bool:
    return hasattr(getattr(module, hook, None), "rlt_impl")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _unknown(name: str) -> str:
    known = [n for n, p in installed().items() if not p.failure and n not in DEFAULTS]
    broken = [f"{n} ({p.failure})" for n, p in installed().items() if p.failure]
    close = difflib.get_close_matches(name, known, 1)
    text = f"no plugin is called {name!r}"
    text += f"; did you mean {close[0]!r}?" if close else ""
    text += f" (installed: {', '.join(known)}"
    return text + (f"; broken: {', '.join(broken)})" if broken else ")")
