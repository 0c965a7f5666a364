/* Looking inside files, and bringing them in and out of other ecosystems.
 *
 *     kvf_json *tree = NULL;
 *     if (kvf_inspect(ctx, "prefix.h5", &tree)) return 1;
 *     puts(kvf_json_str(kvf_json_get(tree, "kind"), NULL));
 *     kvf_json_free(tree);
 */
#ifndef KVFOLD_IO_H
#define KVFOLD_IO_H

#include <kvfold/base.h>
#include <kvfold/json.h>
#include <kvfold/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Describes a kvfold (HDF5), safetensors or GGUF file, or a Hugging Face or PEFT folder. *out,
 * freed by the caller, is an object:
 * - kind ("prefix", "run", "safetensors", "gguf", "peft", "hf"), attributes {}, tensors [{name,
 * shape, dtype, bytes, labels?}].
 * - Own files: features [], options {}, lineage {}.
 * - Prefixes: `layers` [{layer, key {mean, std, min, max, norm}, value {...}}].
 * - Runs: history {steps, first_train_loss, last_train_loss, best_...}.
 * - Foreign files: metadata {}.
 * EIO, EFORMAT, EUNSUPPORTED: one line naming the file. */
kvf_status kvf_inspect(kvf_ctx *ctx, const char *path, kvf_json **out);

/* The history of a run: a value of each column for each of its n steps. `inspect` and `report` read
 * it. EFORMAT: the file is no run. */
typedef struct kvf_history kvf_history;
kvf_status kvf_history_open(kvf_ctx *ctx, const char *run, kvf_history **out);
void kvf_history_free(kvf_history *history); /* history may be NULL. */
int64_t kvf_history_steps(const kvf_history *history);
/* Returns the name of a column by index ("step", "train_loss", "valid_loss", "lr", ...), NULL past
 * the last. *values is a view [n], NaN for steps without such a number (a step without a
 * validation). */
const char *kvf_history_column(const kvf_history *history, size_t index, const double **values);

typedef struct kvf_import_options {
    const char *path, *out;
    const char *from; /* "peft", "encoder", "base"; "auto" or NULL: detected from the files */
    const char *base; /* base that gives L, G, D and hash; NULL: allowed for PEFT folders, base_hash
                         stays empty */
    const char *labels; /* "a,b,c": names of the head's outputs; NULL: from its config, else
                           LABEL_0, LABEL_1, ... */
    bool force;
    const char *lora; /* LoRA folder, as in kvf_base_options; NULL: none */
    uint64_t reserved[7];
} kvf_import_options;

/* Imports a foreign file. A PEFT PREFIX_TUNING or CARTRIDGE folder becomes a prefix file, and so
 * does a saved sequence of llama.cpp (base: the GGUF that computed it). An encoder state dict
 * becomes a run file at step 0 with zero moments. A Hugging Face folder becomes a base file with
 * the same hash. A GGUF becomes one with the same values, quantized weights as f32, and a hash of
 * its own. A torch pickle is EUNSUPPORTED; the line names the command that converts it, python -m
 * kvfold.from_pickle, which makes PEFT folders of other programs' prefixes. kind, at least 16
 * bytes, receives "prefix", "embeddings" (of PROMPT_TUNING and P_TUNING folders), "run" or "base".
 */
kvf_status kvf_import(kvf_ctx *ctx, const kvf_import_options *options, char *kind);

#ifdef KVF_EXPERIMENTAL
typedef struct kvf_new_base_options {
    const char *config;    /* config.json of any architecture that kvf_base_open supports */
    const char *tokenizer; /* tokenizer.json, or a folder with a tokenizer's files */
    const char *out;
    uint64_t seed;
    bool force;
} kvf_new_base_options;
typedef struct kvf_new_base_result {
    const char *architecture; /* static text */
    int64_t parameters;
} kvf_new_base_result;

/* Writes a base file with random weights, to be trained with --method full. Weights: N(0,
 * initializer_range of the config, or 0.02); biases 0; norms 1. */
kvf_status kvf_new_base(kvf_ctx *ctx, const kvf_new_base_options *options,
                        kvf_new_base_result *result);
#endif

typedef enum kvf_export_format {
    KVF_EXPORT_PEFT,
    KVF_EXPORT_SAFETENSORS,
    KVF_EXPORT_LLAMACPP,
    KVF_EXPORT_MLX,
    KVF_EXPORT_TOKENIZER,
    KVF_EXPORT_TRANSFORMERS,
    KVF_EXPORT_GGUF,
    KVF_EXPORT_HUB_REPO
} kvf_export_format;

typedef struct kvf_export_options {
    const char *path, *out; /* path: run or prefix file (for format tokenizer, a base); out: file or
                               folder to make */
    kvf_export_format format;
    kvf_checkpoint checkpoint;
    const char *head;    /* run of several tasks: the task whose head is exported */
    const char *base_id; /* peft, hub-repo: Hub id or existing folder from which transformers loads
                            the base (else EUSAGE); NULL: the base's name, which transformers may
                            not find */
    const char *base;    /* llamacpp, gguf: the GGUF that the engine runs; transformers: the base */
    /* Engine settings. NULL, 0: the defaults in KVF_EXPORT_ENGINES. */
    const char *engine;          /* llamacpp, mlx; NULL: the first of its format */
    const char *state_version;   /* llamacpp: "3", "4" */
    const char *flash_attention; /* llamacpp: "on", or "off" (values are then transposed) */
    int64_t streams;   /* llamacpp: number of streams of a cache that its sequences do not share */
    const char *dtype; /* llamacpp: "f16", "f32"; mlx: "f16", "f32" (default) */
    bool force;
    const char *lora;     /* llamacpp: LoRA folder that the engine runs with the base; NULL: none */
    const char *ffn_type; /* gguf: "q8_0", "f16" or "f32" for the matrices of feed-forward blocks;
                             NULL: their own types */
    uint64_t reserved[6];
} kvf_export_options;
#define KVF_EXPORT_ENGINES "llama-server|node-llama-cpp|llama-cpp-python|mlx-lm|mlx-lm-0.31.3"

/* Exports a run, a prefix or a tokenizer.
 * - peft: a folder for PeftModel.from_pretrained, or AutoPeftModelFor... with a base_id. It
 * includes the task's head; labels.json names its outputs, README.md is a model card.
 * - safetensors: past_key_values [L, 2, 1, G, P, D] in one file.
 * - llamacpp: a folder with a saved sequence of llama.cpp (prefix.state), the ids of its tokens, a
 * chat template that begins with them, and README.md. A base with other weights gives a warning,
 * one of another shape or architecture EMISMATCH.
 * - mlx: the prompt cache of mlx-lm in one file.
 * - transformers: a folder for AutoModel... of `base` with the virtual neurons of a prefix folded
 * into its feed-forward matrices, or of a base at `path` without `base`.
 * - gguf: the GGUF `base` with the virtual neurons of a prefix in its feed-forward matrices; with
 * keys and values a folder of that GGUF and what llamacpp makes. With a GGUF at `path` and `lora`,
 * or a base file at `path` that was trained on `base`: the GGUF with those weights.
 * - hub-repo: a folder for `hf upload`: a prefix file as prefix.h5, its tensor as
 * prefix.safetensors and the files of peft, as far as they can hold it, and a model card.
 * - tokenizer: a folder for AutoTokenizer. For a GGUF, tokenizer.json and tokenizer_config.json are
 * made from its metadata with the same ids.
 * EUNSUPPORTED: the prefix is more than keys and values at positions 0 to P - 1 (llamacpp, mlx), or
 * has no form in PEFT. EUSAGE: an option does not apply to the format. */
kvf_status kvf_export(kvf_ctx *ctx, const kvf_export_options *options);
/* Exports a prefix in memory, with the head in use. EUSAGE: path, checkpoint or head are set, or
 * the format is tokenizer. */
kvf_status kvf_prefix_export(kvf_ctx *ctx, const kvf_prefix *prefix,
                             const kvf_export_options *options);

/* Writes the versions of the libraries that affect results and files, such as "oneDNN 2.6.3, HDF5
 * 1.10.8", for bug reports. 96 bytes are always enough; EUSAGE: n is too small. */
kvf_status kvf_library_versions(char *buf, size_t n);

#ifdef __cplusplus
}
#endif
#endif
