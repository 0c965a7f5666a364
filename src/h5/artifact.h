/* kvfold's own files as one record: the output of training and the input of all other commands.
 * docs/format.md is the specification; only h5*.c use HDF5.
 *
 * A kind of file is a row (artifact_priv.h) for its members. Reading, writing, checks of untrusted
 * files, `inspect` and `diff` use the record. Weights and texts of a base have their own calls
 * (base_file.h).
 *
 * Writers borrow their arguments and write whole files (temporary, fsync, rename). Readers own
 * their results until *_done. Readers accept only superblock version 2 or 3, known names, hard
 * links, no external or virtual storage, and known filters. Ranks, types and sizes must match the
 * schema. All of this is checked before any allocation. Files end in a seal, a hash of all bytes
 * before it, which is checked if present (h5.h). */
#ifndef KVF_ARTIFACT_H
#define KVF_ARTIFACT_H

#include <kvfold/model.h>

#include "head_values.h"
#include "history.h"
#include "prefix.h"
#include "vectors.h"

/* Attributes of every file except a base: of the root, and of the dataset /prefix/past_key_values
 * or the group /encoder. */
typedef struct kvf__identity {
    char *base_name;         /* "SmolLM2-135M-Instruct"; for information */
    char *base_architecture; /* "llama" */
    char *base_hash;         /* 32 hex digits, or "" if unknown */
    char *method;            /* "mlp", "direct" */
    char *task;              /* "lm" */
    char *chat_template;     /* "none", "chatml", ...: template of the training rows */
    char *row_form;          /* lm: "text", "pairs", "chat", as in render.h; NULL or "": unknown */
    char *example_prompt;    /* of the training rows; NULL or "": none */
    int64_t position_start;
    int64_t encoder_layers; /* encoder-decoder: number of encoder layers, which come first; 0: one
                               stack */
    bool infix;             /* the prefix is inside rows, see batch.h; a feature of the file */
    bool pre_rope;          /* key_space "pre-rope": keys are not yet rotated */
    bool relative_bias;     /* "decoder": see `near` in prefix.h */
    kvf__neuron_shape neurons; /* of the prefix; N = 0: none, and the rest is 0 */
    int64_t L, G, P, D;
    /* [L + 1], owned, if layers differ; G and D are then KVF__BY_LAYER; else NULL */
    kvf__kv_heads *heads;
} kvf__identity;
kvf__kv_shape kvf__identity_kv(const kvf__identity *id); /* a view */
/* Returns the value of `near` for such a prefix. */
static inline int64_t kvf__identity_near(const kvf__identity *id)
{
    return id->relative_bias ? id->encoder_layers : 0;
}
kvf_status kvf__identity_set_kv(kvf_ctx *ctx, kvf__identity *id, const kvf__kv_shape *shape);
kvf_status kvf__identity_copy(kvf_ctx *ctx, const kvf__identity *from, kvf__identity *out);
void kvf__identity_done(kvf__identity *id);

typedef enum kvf__kind {
    KVF__KIND_ANY, /* reading only: any kind */
    KVF__KIND_RUN,
    KVF__KIND_PREFIX,
    KVF__KIND_EMBEDDINGS,
    KVF__KIND_ADAPTER,
    KVF__KIND_BASE
} kvf__kind;
/* kvfold_kind: "run", "prefix", ... */
const char *kvf__kind_name(kvf__kind kind);
/* Returns the kind of a file in a known format. */
kvf_status kvf__kind_of(kvf_ctx *ctx, const char *path, kvf__kind *out);

/* Parts absent from a kind are empty. */
typedef struct kvf__artifact {
    kvf__kind kind;
    kvf__identity id;
    kvf__head_values head;  /* always f32; of a run, the last step's */
    kvf_json *options;      /* object of scalars, or NULL: the training options */
    kvf_json *lineage;      /* object of scalars, or NULL: data hashes, run hash, fold check */
    struct {                /* prefix */
        kvf__prefix prefix; /* values in f32 for any dtype of the file, with the layer_mask */
        kvf__dtype dtype;   /* type of the stored values: F32, F16, BF16 or I8 */
    };
    struct {                  /* embeddings */
        kvf__vectors vectors; /* [P, C] */
        char *pattern;        /* --p-template; NULL or "": virtual tokens lead the row */
    };
    /* run: parameters of the encoder, last step; adapter: adapters, then norms */
    kvf__params_owned values;
    struct {                          /* adapter */
        int64_t size;                 /* width of the bottleneck */
        char *activation, *placement; /* names from --adapter-activation and --adapter-placement */
    };
    struct {                    /* run; with method head the encoder has no parameters */
        uint8_t *layer_mask;    /* [L] */
        uint8_t *neuron_mask;   /* [neurons.L]; NULL: no neurons */
        kvf__params_owned best; /* parameters of the best step; n = 0: not yet validated */
        kvf__params_owned best_head;
        int64_t best_step;
        double best_value;
        char *best_metric; /* "valid_loss", "accuracy", ...; NULL if none */
        /* AdamW moments of encoder, then head; n = 0: imported, at step 0 */
        kvf__params_owned m, v;
        kvf_json *state; /* object of integers and reals: step, tokens, rng_*, data position ... */
        kvf__history history;
    };
} kvf__artifact;
/* Returns whether a run has the state of a validation. */
static inline bool kvf__run_has_best(const kvf__artifact *run)
{
    return run->best.params.n || run->best_head.params.n;
}
/* Writes a file of any kind except a base. */
kvf_status kvf__artifact_write(kvf_ctx *ctx, const char *path, bool force,
                               const kvf__artifact *artifact);
/* Reads the parts for inference and tools: all but moments and history of a run. For a base,
 * attributes and head of the task that it was trained for; id.task NULL: none. */
kvf_status kvf__artifact_read(kvf_ctx *ctx, const char *path, kvf__kind kind, kvf__artifact *out);
/* Reads all parts. */
kvf_status kvf__artifact_read_all(kvf_ctx *ctx, const char *path, kvf__kind kind,
                                  kvf__artifact *out);
/* Reads only the identity. */
kvf_status kvf__artifact_identity(kvf_ctx *ctx, const char *path, kvf__kind kind,
                                  kvf__identity *out);
/* Reads only the history of a run. */
kvf_status kvf__artifact_history(kvf_ctx *ctx, const char *path, kvf__history *out);
void kvf__artifact_done(kvf__artifact *artifact);

/* Convert and name the types "f32", "f16", "bf16", "int8". EUSAGE; NULL: not a type of a prefix. */
kvf__dtype kvf__prefix_dtype(kvf_dtype dtype);
const char *kvf__prefix_dtype_name(kvf__dtype dtype);
/* Computes the prefix that a file of that type reads back as. ENUMERIC: a value exceeds its range;
 * `where` names the prefix. */
kvf_status kvf__prefix_rounded(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                               const kvf__prefix *from, kvf__prefix *out);
/* Encodes the stored values of a prefix (prefix_store.c): `values` in the dtype; scale [L, 2, G]
 * for int8 only. ENUMERIC: a value exceeds the range of the dtype. */
size_t kvf__prefix_scales(const kvf__prefix *prefix); /* L * 2 * G */
kvf_status kvf__prefix_encode(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                              const kvf__prefix *prefix, void *values, float *scale);
void kvf__prefix_decode(kvf__dtype dtype, const void *values, const float *scale,
                        kvf__prefix *prefix);

#endif
