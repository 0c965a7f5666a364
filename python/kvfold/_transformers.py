"""A prefix as inputs of a model of transformers: a cache that begins with the prefix, and ids, mask and positions that fit it."""
from __future__ import annotations

from collections import UserDict
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Union

import torch
import transformers
from transformers.cache_utils import Cache, DynamicLayer

from ._library import Error

if TYPE_CHECKING:
    from .prefix import Prefix

_ENCODERS = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "deberta-v2", "modernbert", "nomic_bert")
_WITHOUT_CACHE = dict.fromkeys(("openai-gpt", "distilbert", "deberta-v2", "modernbert", "nomic_bert"), "its model in transformers has no cache")


#: transformers 5.24 renamed the argument.
CACHE_NAME = "cache" if tuple(map(int, transformers.__version__.split(".")[:2])) >= (5, 24) else "past_key_values"


class Inputs(UserDict):
    """Arguments for one call of a model of transformers, which adds its own tokens to the cache of `length` tokens."""

    length = 0

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if name == CACHE_NAME and value.get_seq_length() > self.length:
            raise Error("these inputs were used by a model, whose tokens are in the cache now: call prefix.inputs() again")
        return value

    def to(self, device: Any) -> Inputs:
        """Moves ids, mask and positions in place. The cache follows the model by itself."""
        self.update({name: value.to(device) for name, value in self.data.items() if torch.is_tensor(value)})
        return self


class _Layer(DynamicLayer):
    """Keys and values [1, G, P, D] of a layer. The first update repeats them for all rows, in the model's type and on its device."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.keys.shape[0] != key_states.shape[0]:  # beams and num_return_sequences make more rows of what is given
            self.keys = self.keys.expand(key_states.shape[0], -1, -1, -1)
            self.values = self.values.expand(key_states.shape[0], -1, -1, -1)
        self.keys, self.values = self.keys.to(key_states), self.values.to(value_states)
        self.dtype, self.device = self.keys.dtype, self.keys.device
        return super().update(key_states, value_states, *args, **kwargs)


def _cache(prefix: Prefix) -> Cache:
    return Cache(layers=[_Layer(*torch.from_numpy(layer.copy())) for layer in prefix.layers()])


def _refusal(facts: Dict[str, Any]) -> Optional[str]:
    """Why a cache cannot hold this prefix; None: it can."""
    if "encoder_layers" in facts:
        return "it is for an encoder-decoder"
    if "infix" in facts:
        return "it is inside rows (--infix)"
    if not all(facts["layer_mask"]):
        return "it is in some layers only (--layers), and those of a cache share one mask"
    return _WITHOUT_CACHE.get(facts["base_architecture"])


def _padded(rows: Sequence[Sequence[int]], fill: int, at_left: bool, width: int) -> torch.Tensor:
    """[B, width] int64."""
    out = torch.full((len(rows), width), fill, dtype=torch.long)
    for line, row in zip(out, rows):
        (line[width - len(row):] if at_left else line[:len(row)]).copy_(torch.as_tensor(row))
    return out


def inputs(prefix: Prefix, tokenizer: Any, texts: Sequence[Union[str, Sequence[int]]],
           forward: Optional[bool]) -> Inputs:
    """See Prefix.inputs."""
    facts = prefix._attributes
    why = _refusal(facts)
    if why:
        raise Error(f"no cache of transformers has the form of this prefix: {why}", "EUNSUPPORTED")
    encoder = facts["base_architecture"] in _ENCODERS
    if encoder and forward is False:
        raise Error(f"{facts['base_architecture']} is an encoder, which generates nothing")
    return _of_ids(prefix, tokenizer, texts, facts, encoder, forward or encoder)


def _of_ids(prefix: Prefix, tokenizer: Any, texts: Sequence[Any], facts: Dict[str, Any], encoder: bool,
            forward: bool) -> Inputs:
    if isinstance(texts, str) or not len(texts):
        raise Error("want a list of texts")
    coded = tokenizer(list(texts)) if isinstance(texts[0], str) else {"input_ids": texts}
    ids: List[Sequence[int]] = list(coded["input_ids"])
    if not all(len(row) for row in ids):
        raise Error("a text without a token")
    pad = getattr(tokenizer, "pad_token_id", None)
    first = prefix.position_start
    if facts["base_architecture"] in ("roberta", "xlm-roberta"):  # count from the id of padding on
        pad = 1 if pad is None else pad
        first += pad + 1
    fill = pad if pad is not None else getattr(tokenizer, "eos_token_id", None) or 0
    P, T, left = prefix.length, max(map(len, ids)), not encoder

    def padded(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
        return _padded(rows, value, left, T)

    out = {"input_ids": padded(ids, fill), "position_ids": padded([range(first, first + len(row)) for row in ids], 0)}
    if "token_type_ids" in coded and encoder:
        out["token_type_ids"] = padded(coded["token_type_ids"], 0)
    mask = padded([[1] * len(row) for row in ids], 0)
    if not forward:  # generate() takes as many columns of ids as there are in the mask, and leaves out those of the cache
        ahead = torch.zeros(len(ids), P, dtype=torch.long)
        out = {"input_ids": torch.cat([ahead + fill, out["input_ids"]], 1),
               "position_ids": torch.cat([ahead, out["position_ids"]], 1)}
    mask = torch.cat([torch.ones(len(ids), P, dtype=torch.long), mask], 1)
    made = Inputs({**out, "attention_mask": mask, CACHE_NAME: _cache(prefix)})
    made.length = P
    return made
