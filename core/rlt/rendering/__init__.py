"""Messages to tokens, and tokens to datums.

Two rules hold everywhere. Text is encoded piece by piece and the pieces' ids are joined, so what is
trained on is, id for id, what was sampled from; and no joint encoding is ever cut at a length. The
end of a turn is a token like any other: it is in the target, with weight 1, or a model never learns
to stop.
"""

from rlt.rendering.chat import ChatRenderer
from rlt.rendering.datums import Example, Reduction, datum, datums, mean_nll, mean_scales
from rlt.rendering.messages import as_messages
from rlt.rendering.raw import RawRenderer
from rlt.rendering.renderer import Renderer, Thinking, Unrenderable, renderer_for

__all__ = [
    "ChatRenderer",
    "Example",
    "RawRenderer",
    "Reduction",
    "Renderer",
    "Thinking",
    "Unrenderable",
    "as_messages",
    "datum",
    "datums",
    "mean_nll",
    "mean_scales",
    "renderer_for",
]
