"""Layout of the C structs that Python passes to the library, member by member as in include/kvfold/*.h.

tests/test_layout.py compares it with tests/abi.txt. A struct starts as zeros, which select the defaults of the C library.
"""
from __future__ import annotations

import ctypes
from ctypes import POINTER, c_bool as BOOL, c_char_p as TEXT, c_double as REAL, c_float, c_int as ENUM, c_int32, c_int64 as INT
from ctypes import c_size_t as SIZE, c_uint64 as UINT, c_void_p as POINTER_TO

CHECKPOINTS = {None: 0, "best": 1, "last": 2}
DTYPES = {"f32": 0, "f16": 1, "bf16": 2, "int8": 3}
EVENTS = ("start", "step", "eval", "save", "note", "retention", "forecast")
EXPORT_MLX = 3
EXPORT_PEFT = 0
LOG_WARN = 0
OVERLONG = {None: 0, "stop": 1, "truncate": 2, "truncate-end": 3, "skip": 4}
PRECISIONS = {"auto": 0, "f32": 1, "bf16": 2, "int8": 3}
PREDICT_JSONL = 1
STATUS_STOPPED = 11
WEIGHT_DTYPES = {"auto": 0, "f32": 1, "bf16": 2, "int8": 3}
MAX_SCORES = 24

LOG = ctypes.CFUNCTYPE(None, POINTER_TO, ENUM, TEXT)
WRITE = ctypes.CFUNCTYPE(None, POINTER_TO, POINTER_TO, SIZE)


class Struct(ctypes.Structure):
    pass


class kvf_ctx_options(Struct):
    _fields_ = [("threads", ENUM), ("log", LOG), ("log_user", POINTER_TO), ("check_program", TEXT),
                ("alloc", POINTER_TO), ("release", POINTER_TO), ("memory_user", POINTER_TO), ("reserved", UINT * 1)]


class kvf_base_options(Struct):
    _fields_ = [("precision", ENUM), ("backward", BOOL), ("weight_dtype", ENUM), ("stream_layers", BOOL), ("lora", TEXT),
                ("reserved", UINT * 3)]


class kvf_shape(Struct):
    _fields_ = [(letter, INT) for letter in "LHGDCFV"] + [("max_positions", INT)]


class kvf_token_bias(Struct):
    _fields_ = [("id", c_int32), ("bias", c_float)]


class kvf_generate_options(Struct):
    _fields_ = [("max_tokens", INT), ("temperature", REAL), ("top_k", INT), ("top_p", REAL), ("min_p", REAL),
                ("repetition_penalty", REAL), ("presence_penalty", REAL), ("frequency_penalty", REAL),
                ("logit_bias", POINTER(kvf_token_bias)), ("n_logit_bias", SIZE), ("beams", INT), ("length_penalty", REAL),
                ("seed", UINT), ("stop", POINTER(TEXT)), ("n_stop", SIZE), ("chat_template", TEXT), ("batch_size", INT),
                ("token", POINTER_TO), ("token_user", POINTER_TO), ("more", POINTER_TO), ("n_more", SIZE), ("draft", INT),
                ("reserved", UINT * 7)]


class kvf_import_options(Struct):
    _fields_ = [("path", TEXT), ("out", TEXT), ("from", TEXT), ("base", TEXT), ("labels", TEXT), ("force", BOOL),
                ("lora", TEXT), ("reserved", UINT * 7)]


class kvf_export_options(Struct):
    _fields_ = [("path", TEXT), ("out", TEXT), ("format", ENUM), ("checkpoint", ENUM), ("head", TEXT), ("base_id", TEXT),
                ("base", TEXT), ("engine", TEXT), ("state_version", TEXT), ("flash_attention", TEXT), ("streams", INT),
                ("dtype", TEXT), ("force", BOOL), ("lora", TEXT), ("ffn_type", TEXT), ("reserved", UINT * 6)]


class kvf_merge_options(Struct):
    _fields_ = [("run", TEXT), ("out", TEXT), ("out_base", TEXT), ("checkpoint", ENUM), ("head", TEXT), ("dtype", ENUM),
                ("force", BOOL), ("base", TEXT), ("probe", TEXT), ("allow_other_base", BOOL), ("lora", TEXT),
                ("reserved", UINT * 7)]


class kvf_merge_result(Struct):
    _fields_ = [("shape", INT * 6), ("rank", ENUM), ("bytes", INT), ("max_abs_diff", REAL), ("probe_max_abs_diff", REAL),
                ("step", INT), ("reserved", UINT * 8)]


class kvf_metric(Struct):
    _fields_ = [("name", TEXT), ("value", REAL)]


class kvf_forecast(Struct):
    _fields_ = [("steps", INT), ("validations", INT), ("seconds_per_step", REAL), ("seconds_per_validation", REAL),
                ("seconds_per_save", REAL), ("seconds", REAL), ("probe_seconds", REAL), ("peak_rss_bytes", INT), ("tokens", INT),
                ("trainable_parameters", INT), ("file_bytes", INT), ("reserved", UINT * 8)]


class kvf_event(Struct):
    _fields_ = [("kind", ENUM), ("step", INT), ("steps", INT), ("train_loss", REAL), ("valid_loss", REAL), ("metric", kvf_metric),
                ("best", BOOL), ("retention_loss", REAL), ("retention_base_loss", REAL), ("lr", REAL), ("grad_norm", REAL),
                ("prefix_norm", REAL), ("tokens", INT), ("tokens_per_second", REAL), ("seconds", REAL), ("seconds_left", REAL),
                ("text", TEXT), ("forecast", POINTER(kvf_forecast)), ("detail", BOOL), ("reserved", UINT * 7)]


EVENT = ctypes.CFUNCTYPE(None, POINTER_TO, POINTER(kvf_event))


class kvf_option(Struct):
    _fields_ = [("name", TEXT), ("argument", TEXT), ("initial", TEXT), ("help", TEXT)]


class kvf_train_result(Struct):
    _fields_ = [("steps", INT), ("train_loss", REAL), ("valid_loss", REAL), ("best_valid_loss", REAL), ("best", kvf_metric),
                ("best_step", INT), ("stopped_early", BOOL), ("retention_loss", REAL), ("retention_start_loss", REAL),
                ("retention_base_loss", REAL), ("tokens", INT), ("computed_tokens", INT), ("tokens_per_second", REAL),
                ("seconds", REAL), ("step_seconds", REAL), ("peak_rss_bytes", INT), ("trainable_parameters", INT),
                ("label_tokens", INT), ("examples", INT), ("precision", TEXT), ("finished_before", BOOL), ("ranks", INT),
                ("wait_seconds", REAL), ("signal", ENUM), ("forecast", kvf_forecast), ("parameters", INT),
                ("bare_loss", REAL), ("start_loss", REAL), ("largest_class", REAL), ("truncated", INT), ("reserved", UINT * 3)]


class kvf_eval_options(Struct):
    _fields_ = [("data", TEXT), ("format", TEXT), ("columns", TEXT), ("no_header", BOOL), ("max_length", INT),
                ("split_text", INT), ("limit", INT), ("overlong", ENUM), ("chat_template", TEXT), ("map", TEXT),
                ("batch_tokens", INT), ("share_off", BOOL), ("generate", INT), ("no_answer_above", REAL), ("max_answer", INT),
                ("n_best", INT), ("per_class", BOOL), ("majority", BOOL), ("delimiter", TEXT),
                ("reserved", UINT * 7)]


class kvf_class_score(Struct):
    _fields_ = [("name", TEXT), ("precision", REAL), ("recall", REAL), ("f1", REAL), ("support", INT)]


class kvf_class_scores(Struct):
    _fields_ = [("n", SIZE), ("item", POINTER(kvf_class_score))]


class kvf_eval_result(Struct):
    _fields_ = [("task", TEXT), ("loss", REAL), ("perplexity", REAL), ("label_tokens", INT), ("examples", INT), ("skipped", INT),
                ("truncated", INT), ("without_label", INT), ("n_scores", SIZE), ("scores", kvf_metric * MAX_SCORES),
                ("classes", kvf_class_scores), ("entity_types", kvf_class_scores), ("seconds", REAL), ("reserved", UINT * 8)]


class kvf_predict_options(Struct):
    _fields_ = [("eval", kvf_eval_options), ("out", TEXT), ("out_format", ENUM), ("force", BOOL), ("write", WRITE),
                ("user", POINTER_TO), ("reserved", UINT * 8)]


class kvf_token_score(Struct):
    _fields_ = [("id", c_int32), ("greedy", BOOL), ("logprob", c_float)]


class kvf_row_score(Struct):
    _fields_ = [("skipped", BOOL), ("loglikelihood", REAL), ("n", SIZE), ("tokens", POINTER(kvf_token_score)),
                ("reserved", UINT * 2)]


class kvf_score_options(Struct):
    _fields_ = [("eval", kvf_eval_options), ("out", TEXT), ("force", BOOL), ("write", WRITE), ("user", POINTER_TO),
                ("reserved", UINT * 8)]


class kvf_score_result(Struct):
    _fields_ = [("n", SIZE), ("rows", POINTER(kvf_row_score)), ("tokens", INT), ("skipped", INT), ("truncated", INT),
                ("seconds", REAL), ("memory", POINTER_TO), ("reserved", UINT * 8)]
