"""Calling hooks, with every plugin's failure named at the boundary.

What a plugin raises becomes a `PluginError` that says which plugin, which hook and which step, and
the line of the plugin's code. The program's own errors and those of the service pass through.
"""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import pluggy

from rlt.errors import PluginError, RltError
from rlt.service_errors import is_service_error


class Hooks:
    """The hooks of one run's plugins."""

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self._manager = manager

    def call(self, hook: str, /, **arguments: Any) -> Any:
        """Call a hook; the result is the first one, or a list, as its specification says.

        :raises PluginError: when a plugin raises.
        """
        with self.boundary(hook, arguments):
            return getattr(self._manager.hook, hook)(**arguments)

    async def call_async(self, hook: str, /, **arguments: Any) -> Any:
        """Call a first-result hook that may be async: the first answer, awaited, that is not None.

        Plugins are asked one after another here, because what an async one has to say is only
        known once it has been awaited.
        """
        caller = getattr(self._manager.hook, hook)
        plugins = [each.plugin for each in caller.get_hookimpls() if not _wraps(each)]
        for plugin in reversed(plugins):
            others = [each for each in plugins if each is not plugin]
            with self.boundary(hook, arguments):
                result = self._manager.subset_hook_caller(hook, others)(**arguments)
                result = await result if inspect.isawaitable(result) else result
            if result is not None:
                return result
        return None

    @contextlib.contextmanager
    def boundary(self, hook: str, arguments: Mapping[str, Any]) -> Iterator[None]:
        """Inside, what a plugin's code raises is told as its failure in `hook`."""
        try:
            yield
        except (Exception, SystemExit) as error:
            if isinstance(error, RltError) or is_service_error(error):
                raise
            raise self._blame(error, hook, arguments) from error

    def _blame(self, error: BaseException, hook: str, arguments: Mapping[str, Any]) -> PluginError:
        name, line = self._culprit(error, hook)
        step = arguments.get("step", getattr(arguments.get("record"), "step", None))
        at = "" if step is None else f" at step {step}"
        message = " ".join(str(error).split())
        return PluginError(
            f"plugin {name!r} raised {type(error).__name__} in {hook}{at} ({line}): {message}"
        )

    def _culprit(self, error: BaseException, hook: str) -> tuple[str, str]:
        """Return (the plugin whose code is on the traceback, where it raised)."""
        codes: dict[object, str] = {
            each.function.__code__: each.plugin_name
            for each in getattr(self._manager.hook, hook).get_hookimpls()
            if hasattr(each.function, "__code__")
        }
        files = {getattr(plugin, "__file__", None): name for name, plugin in
                 self._manager.list_name_plugin()}  # fmt: skip
        name = "unknown"
        for frame, _ in traceback.walk_tb(error.__traceback__):
            # by its function, or for what a function handed out (a loss), by its file
            name = codes.get(frame.f_code) or files.get(frame.f_code.co_filename) or name
        last = traceback.extract_tb(error.__traceback__)[-1]
        return name, f"{last.filename}:{last.lineno}"


def _wraps(implementation: pluggy.HookImpl) -> bool:
    return implementation.hookwrapper or implementation.wrapper
