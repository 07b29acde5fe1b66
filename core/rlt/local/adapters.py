"""LoRA adapters: many sets of weights, few places to put them.

peft supplies the layers and their maths. Adding an adapter to every layer of a model is slow, and a
run makes a new set of weights for every sampler, so peft is asked only once for each *shape* (rank
and which layers); the weights of training clients and samplers are plain tensors that are hung into
the layers of their shape before use.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import torch
from peft import LoraConfig, TaskType, inject_adapter_in_model
from peft.tuners.lora import LoraLayer

from rlt.local.refusal import Refusal

if TYPE_CHECKING:
    from rlt.local.network import Network

ALPHA = 32
MAX_RANK = 512
_ATTENTION_WORDS = ("attn", "attention")


@dataclass(frozen=True)
class Shape:
    """What a LoRA adapter covers; adapters of one shape share their place in the model."""

    rank: int
    attention: bool = True
    mlp: bool = True
    unembed: bool = True

    def __post_init__(self) -> None:
        """Refuse a shape that has nothing to train."""
        if not 1 <= self.rank <= MAX_RANK:
            raise Refusal(f"LoRA rank must be between 1 and {MAX_RANK}, got {self.rank}")
        if not (self.attention or self.mlp or self.unembed):
            raise Refusal("nothing to train: train_attn, train_mlp and train_unembed are all off")


@dataclass
class Adapter:
    """One set of LoRA weights: peft's parameter names to A (rank, in) and B (out, rank)."""

    shape: Shape
    weights: dict[str, torch.Tensor]

    def snapshot(self) -> Adapter:
        """A frozen copy, which later training does not touch."""
        return Adapter(self.shape, {k: v.detach().clone() for k, v in self.weights.items()})

    def nbytes(self) -> int:
        """Memory held by the weights."""
        return sum(tensor.nbytes for tensor in self.weights.values())


@dataclass
class _Slot:
    """The layers of one shape: where weights are hung."""

    config: LoraConfig
    places: dict[str, torch.nn.Linear] = field(default_factory=dict)


class AdapterBank:
    """Makes adapters for one network, and hangs one of them into it at a time."""

    def __init__(self, network: Network) -> None:
        """Look for the layers that LoRA can train, before peft has wrapped any."""
        self._network = network
        self._layers = network.linear_layers()
        head = network.module.get_output_embeddings()
        self._head = next((name for name, layer in self._layers.items() if layer is head), None)
        self._slots: dict[Shape, _Slot] = {}
        self._shown: Shape | None = None

    def create(self, shape: Shape, seed: int) -> Adapter:
        """A new adapter as peft initialises one: A Kaiming-uniform (a = sqrt 5), B zero.

        The same seed gives the same weights.
        """
        generator = torch.Generator().manual_seed(seed)
        weights: dict[str, torch.Tensor] = {}
        for name, place in self._slot(shape).places.items():
            tensor = torch.zeros(*place.weight.shape)
            if name.endswith("lora_A.weight"):
                torch.nn.init.kaiming_uniform_(tensor, a=math.sqrt(5), generator=generator)
            weights[name] = tensor
        return self.trainable(Adapter(shape, weights))

    def trainable(self, adapter: Adapter) -> Adapter:
        """The same weights as parameters of this network, checked to fit it. Raises Refusal."""
        places = self._slot(adapter.shape).places
        fits = adapter.weights.keys() == places.keys() and all(
            adapter.weights[name].shape == place.weight.shape for name, place in places.items()
        )
        if not fits:
            raise Refusal(f"the weights do not fit the model {self._network.name!r}")
        device = self._network.device
        # Copies: what was read from a file is a view of it, and not aligned.
        own = {n: adapter.weights[n].to(device, torch.float32, copy=True) for n in places}
        return Adapter(adapter.shape, {n: torch.nn.Parameter(own[n]) for n in places})

    def hang(self, adapter: Adapter | None) -> None:
        """Make the network compute with `adapter`, or as the plain base model."""
        if adapter is None:
            self._show(None)
            return
        slot = self._slot(adapter.shape)
        self._show(adapter.shape)
        for name, place in slot.places.items():
            # Not setattr: a snapshot's tensor is no Parameter, and need not be one.
            place._parameters["weight"] = cast("torch.nn.Parameter", adapter.weights[name])

    def peft_config(self, shape: Shape) -> LoraConfig:
        """The peft configuration that describes adapters of this shape."""
        leaves = self._targets(shape)
        short = {name.rsplit(".", 1)[-1] for name in leaves}
        covered = {name for name in self._layers if name.rsplit(".", 1)[-1] in short}
        return LoraConfig(
            r=shape.rank,
            lora_alpha=ALPHA,
            target_modules=sorted(short if covered == leaves else leaves),
            task_type=TaskType.CAUSAL_LM,
            base_model_name_or_path=self._network.name,
            bias="none",
            lora_dropout=0.0,
        )

    def _targets(self, shape: Shape) -> set[str]:
        return {name for name in self._layers if self._wanted(name, shape)}

    def _wanted(self, name: str, shape: Shape) -> bool:
        if name == self._head:
            return shape.unembed
        if any(word in part for part in name.lower().split(".") for word in _ATTENTION_WORDS):
            return shape.attention
        return shape.mlp

    def _slot(self, shape: Shape) -> _Slot:
        if shape not in self._slots:
            self._slots[shape] = self._make_slot(shape)
        return self._slots[shape]

    def _make_slot(self, shape: Shape) -> _Slot:
        config, name = self.peft_config(shape), f"shape{len(self._slots)}"
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            # The unembedding may be tied to the embedding; LoRA on the one leaves the other alone.
            warnings.filterwarnings(
                "ignore", message=r"Model (has|with) `tie_word_embeddings=True`"
            )
            # GPT-2 has layers that are stored the other way round; peft sees that by itself.
            warnings.filterwarnings("ignore", message="fan_in_fan_out is set to")
            inject_adapter_in_model(config, self._network.module, name, low_cpu_mem_usage=True)
        del self._network.module.peft_config  # else peft takes the next slot for a mistake
        self._shown = None
        slot = _Slot(config)
        for path, layer in self._network.module.named_modules():
            if isinstance(layer, LoraLayer) and name in layer.lora_A:
                slot.places[f"{path}.lora_A.weight"] = cast("torch.nn.Linear", layer.lora_A[name])
                slot.places[f"{path}.lora_B.weight"] = cast("torch.nn.Linear", layer.lora_B[name])
        self._slots[shape] = slot
        self._select(None)
        return slot

    def _show(self, shape: Shape | None) -> None:
        if shape != self._shown:
            self._select(shape)
            self._shown = shape

    def _select(self, shape: Shape | None) -> None:
        names = list(self._slots)
        for layer in self._network.module.modules():
            if isinstance(layer, LoraLayer):
                layer.enable_adapters(shape is not None)
                if shape is not None:
                    layer.set_adapter(f"shape{names.index(shape)}")
