"""Who is there: sessions, and the training clients and sampling clients that belong to them.

Ids follow from the session and a number the client chose, so that a repeated request finds what the
first one made.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlt.local.checkpoints import now
from rlt.local.refusal import NotFound, Refusal
from rlt.local.samplers import Sampler

if TYPE_CHECKING:
    from rlt.local.adapters import Shape
    from rlt.local.training import Trainee


@dataclass
class Session:
    """One client's visit."""

    session_id: str
    user_metadata: dict[str, Any] | None = None
    display_name: str | None = None
    models: list[str] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)


@dataclass
class Model:
    """One training client."""

    model_id: str
    session_id: str
    shape: Shape
    user_metadata: dict[str, Any] | None
    created: str
    trainee: Trainee | None = None
    """None until the engine's thread has made it."""

    def ready(self) -> Trainee:
        """The trainee. Raises Refusal when its creation failed."""
        if self.trainee is None:
            raise Refusal(f"training client {self.model_id} was never created")
        return self.trainee


class Registry:
    """All sessions and clients by id; safe to use from several threads."""

    def __init__(self) -> None:
        """Nobody is there yet."""
        self.models: dict[str, Model] = {}
        self._sessions: dict[str, Session] = {}
        self._samplers: dict[str, Sampler] = {}
        self._lock = threading.RLock()

    def new_session(
        self, user_metadata: dict[str, Any] | None, display_name: str | None
    ) -> Session:
        """A session with an id that no other has, in this process or another."""
        session = Session(f"local-{uuid.uuid4().hex[:16]}", user_metadata, display_name)
        self._sessions[session.session_id] = session
        return session

    def end_session(self, session_id: str) -> tuple[list[str], list[Sampler]]:
        """Forget a session; returns the training clients' ids and the samplers it had."""
        with self._lock:
            session = self.session(session_id)
            del self._sessions[session_id]
            for model_id in session.models:
                self.models.pop(model_id, None)
            return session.models, [self._samplers.pop(name) for name in session.samplers]

    def session(self, session_id: str) -> Session:
        """Raises NotFound."""
        if session_id not in self._sessions:
            raise NotFound(f"session {session_id!r} is not known, or is finished")
        return self._sessions[session_id]

    def model(self, model_id: str) -> Model:
        """Raises NotFound."""
        if model_id not in self.models:
            raise NotFound(f"training client {model_id!r} is not known, or its session is finished")
        return self.models[model_id]

    def sampler(self, sampler_id: str) -> Sampler:
        """Raises NotFound."""
        if sampler_id not in self._samplers:
            raise NotFound(f"sampler {sampler_id!r} is not known, or its session is finished")
        return self._samplers[sampler_id]

    def new_model(
        self, session_id: str, number: int, shape: Shape, user_metadata: dict[str, Any] | None
    ) -> Model:
        """The training client of this number in a session, made if it is new. Raises NotFound."""
        with self._lock:
            session, model_id = self.session(session_id), f"{session_id}:train:{number}"
            if model_id not in self.models:
                self.models[model_id] = Model(model_id, session_id, shape, user_metadata, now())
                session.models.append(model_id)
            return self.models[model_id]

    def new_sampler(
        self,
        session_id: str,
        number: int | None,
        *,
        tinker_path: str | None = None,
        version: str | None = None,
        snapshot: bool = False,
    ) -> Sampler:
        """The sampler of this number in a session, made if it is new. Raises NotFound."""
        with self._lock:
            session = self.session(session_id)
            name = uuid.uuid4().hex[:16] if number is None else str(number)
            sampler = Sampler(f"{session_id}:sample:{name}", tinker_path, version, snapshot)
            if sampler.sampler_id not in self._samplers:
                session.samplers.append(sampler.sampler_id)
                self._samplers[sampler.sampler_id] = sampler
            return self._samplers[sampler.sampler_id]
