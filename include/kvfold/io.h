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

/* Describes any kvfold (HDF5), safetensors or GGUF file, or a Hugging Face or PEFT folder. *out, to
 * be freed by the caller, is an object: kind ("prefix", "run", "safetensors", "gguf", "peft",
 * "hf"), features [] (own files), attributes {}, tensors [{name, shape, dtype, bytes, labels?}],
 * for prefixes `layers` [{layer, key {mean, std, min, max, norm}, value {...}}], options {},
 * lineage {}, history {steps, first_train_loss, last_train_loss, best_...} for runs, metadata {}
 * for foreign files. EIO, EFORMAT, EUNSUPPORTED: one line naming the file. */
kvf_status kvf_inspect(kvf_ctx *ctx, const char *path, kvf_json **out);

/* What a run measured, a value for each of its n steps; as `inspect` counts and `report` draws it.
 * EFORMAT: the file is no run. */
typedef struct kvf_history kvf_history;
kvf_status kvf_history_open(kvf_ctx *ctx, const char *run, kvf_history **out);
void kvf_history_free(kvf_history *history); /* NULL is fine */
int64_t kvf_history_steps(const kvf_history *history);
/* A column by index: *values is a view [n], NaN where a step has no such number (a step without a
 * validation). The name is "step", "train_loss", "valid_loss", "lr", ...; NULL past the last. */
const char *kvf_history_column(const kvf_history *history, size_t index, const double **values);

typedef struct kvf_import_options {
    const char *path, *out;
    const char *from;   /* "peft", "encoder", "base"; "auto" (also NULL): by the files there */
    const char *base;   /* gives L, G, D, hash; NULL: PEFT folders only, base_hash stays empty */
    const char *labels; /* "a,b,c": names of the head's outputs; NULL: those of its config, else
                           LABEL_0, LABEL_1, ... */
    bool force;
    const char *lora; /* of base, as kvf_base_options has it; NULL: none */
    uint64_t reserved[7];
} kvf_import_options;

/* A PEFT PREFIX_TUNING or CARTRIDGE folder, or a saved sequence of llama.cpp with the GGUF that
 * computed it as its base, becomes a prefix file; an encoder state dict a run file
 * at step 0 with zero moments; a base's Hugging Face folder a base file, of the same hash; a GGUF
 * one of the same bits, integers as the f32 they mean, and so of a hash of its own. A torch pickle
 * is EUNSUPPORTED, and the line has the command that converts it, python -m kvfold.from_pickle,
 * which makes PEFT folders of other programs' prefixes. kind, at least 16 bytes, gets "prefix",
 * "embeddings" (of PROMPT_TUNING and P_TUNING folders), "run" or "base". */
kvf_status kvf_import(kvf_ctx *ctx, const kvf_import_options *options, char *kind);

#ifdef KVF_EXPERIMENTAL
typedef struct kvf_new_base_options {
    const char *config;    /* config.json of any architecture that kvf_base_open knows */
    const char *tokenizer; /* tokenizer.json, or the folder of a tokenizer's files */
    const char *out;
    uint64_t seed;
    bool force;
} kvf_new_base_options;
typedef struct kvf_new_base_result {
    const char *architecture; /* static text */
    int64_t parameters;
} kvf_new_base_result;

/* A base file with random weights, to be trained with --method full: N(0, initializer_range of the
 * config, or 0.02), biases 0, norms 1. */
kvf_status kvf_new_base(kvf_ctx *ctx, const kvf_new_base_options *options,
                        kvf_new_base_result *result);
#endif

typedef enum kvf_export_format {
    KVF_EXPORT_PEFT,
    KVF_EXPORT_SAFETENSORS,
    KVF_EXPORT_LLAMACPP,
    KVF_EXPORT_MLX,
    KVF_EXPORT_TOKENIZER
} kvf_export_format;

typedef struct kvf_export_options {
    const char *path, *out; /* run or prefix file, tokenizer: a base; folder or file to make */
    kvf_export_format format;
    kvf_checkpoint checkpoint;
    const char *head;    /* of a run of several tasks: the one whose head goes along */
    const char *base_id; /* peft: what transformers loads the base by, a Hub id or a folder that is
                            there (else EUSAGE); NULL: the base's name, which it cannot follow */
    const char *base;    /* llamacpp: the GGUF that the engine runs */
    /* What an engine wants; NULL, 0: as the row of KVF_EXPORT_ENGINES. */
    const char *engine;          /* llamacpp, mlx; NULL: the first of its format */
    const char *state_version;   /* llamacpp: "3", "4" */
    const char *flash_attention; /* llamacpp: "on", "off": then values are transposed */
    int64_t streams;             /* llamacpp: of a cache that its sequences do not share */
    const char *dtype;           /* llamacpp: "f16", "f32"; mlx: the same, f32 by default */
    bool force;
    const char *lora; /* llamacpp: of base, which the engine runs with it; NULL: none */
    uint64_t reserved[7];
} kvf_export_options;
#define KVF_EXPORT_ENGINES "llama-server|node-llama-cpp|llama-cpp-python|mlx-lm|mlx-lm-0.31.3"

/* peft: what PeftModel.from_pretrained loads, and AutoPeftModelFor... with a base_id, with the head
 * where the task has one; labels.json has the names of its outputs, README.md is a model card.
 * safetensors: past_key_values [L, 2, 1, G, P, D] in one file.
 * llamacpp: a folder with a saved sequence of llama.cpp, prefix.state, the ids that stand for its
 * tokens, a chat template that begins with them, and README.md. A base of other weights than the
 * prefix is for is used with a warning; EMISMATCH: of another shape or architecture.
 * mlx: the prompt cache of mlx-lm in one file.
 * tokenizer: a folder with the files of a base's tokenizer, which AutoTokenizer loads; of a GGUF
 * tokenizer.json and tokenizer_config.json are made of its metadata, ids alike.
 * EUNSUPPORTED: the prefix is more than keys and values at positions 0 to P - 1 (llamacpp, mlx), or
 * has no form in PEFT. EUSAGE: an option that the format has no place for. */
kvf_status kvf_export(kvf_ctx *ctx, const kvf_export_options *options);
/* The same for a prefix in memory, with the head that it uses. EUSAGE: path, checkpoint or head are
 * set, or the format is tokenizer. */
kvf_status kvf_prefix_export(kvf_ctx *ctx, const kvf_prefix *prefix,
                             const kvf_export_options *options);

/* Versions of the libraries that decide results and files, as "oneDNN 2.6.3, HDF5 1.10.8", for bug
 * reports. EUSAGE: n bytes are too few, 96 are always enough. */
kvf_status kvf_library_versions(char *buf, size_t n);

#ifdef __cplusplus
}
#endif
#endif
