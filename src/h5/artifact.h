/* kvfold's own files as one record: what training makes and everything else reads.
 * docs/format.md is the contract; h5*.c are the only files that know HDF5.
 *
 * A kind of file is a row (artifact_priv.h) for the members it has; reading, writing, the
 * check of files that came from elsewhere, `inspect` and `diff` walk the record. Weights and texts
 * of a base have calls of their own (base_file.h).
 *
 * Writers view everything they are given and write whole files (temporary, fsync, rename). Readers
 * own what they return until *_done. Readers trust nothing: superblock version 2 or 3, known names
 * only, hard links only, no external or virtual storage, known filters, ranks, types and sizes as
 * in the schema, checked before any allocation. Files end in a seal, a hash of all bytes before
 * it; it is checked where it is there (h5.h). */
#ifndef KVF_ARTIFACT_H
#define KVF_ARTIFACT_H

#include <kvfold/model.h>

#include "head_values.h"
#include "history.h"
#include "prefix.h"
#include "vectors.h"

/* Facts of every file but a base: attributes of the root, and of the dataset
 * /prefix/past_key_values or the group /encoder. */
typedef struct kvf__identity {
    char *base_name;         /* "SmolLM2-135M-Instruct"; informative */
    char *base_architecture; /* "llama" */
    char *base_hash;         /* 32 hex digits, or "" if not known */
    char *method;            /* "mlp", "direct" */
    char *task;              /* "lm" */
    char *chat_template;     /* "none", "chatml", ... as rows were rendered in training */
    int64_t position_start;
    int64_t encoder_layers; /* of an encoder-decoder, the first of the layers; 0: one stack */
    bool infix;             /* the prefix lies inside rows, see batch.h; a feature of the file */
    bool pre_rope;          /* key_space "pre-rope": its keys are not rotated yet */
    bool relative_bias;     /* "decoder": see `near` in prefix.h */
    int64_t L, G, P, D;
    kvf__kv_heads *heads; /* [L + 1], owned, where layers differ, and G and D are KVF__BY_LAYER; or
                             NULL */
} kvf__identity;
kvf__kv_shape kvf__identity_kv(const kvf__identity *id); /* a view */
/* What `near` of such a prefix is. */
static inline int64_t kvf__identity_near(const kvf__identity *id)
{
    return id->relative_bias ? id->encoder_layers : 0;
}
kvf_status kvf__identity_set_kv(kvf_ctx *ctx, kvf__identity *id, const kvf__kv_shape *shape);
kvf_status kvf__identity_copy(kvf_ctx *ctx, const kvf__identity *from, kvf__identity *out);
void kvf__identity_done(kvf__identity *id);

typedef enum kvf__kind {
    KVF__KIND_ANY, /* reading only: whatever the file is */
    KVF__KIND_RUN,
    KVF__KIND_PREFIX,
    KVF__KIND_EMBEDDINGS,
    KVF__KIND_ADAPTER,
    KVF__KIND_BASE
} kvf__kind;
/* kvfold_kind: "run", "prefix", ... */
const char *kvf__kind_name(kvf__kind kind);
/* Of a file whose format this version knows. */
kvf_status kvf__kind_of(kvf_ctx *ctx, const char *path, kvf__kind *out);

/* Parts that a kind does not have are empty. */
typedef struct kvf__artifact {
    kvf__kind kind;
    kvf__identity id;
    kvf__head_values head;  /* f32 always; of a run the last step's */
    kvf_json *options;      /* object of scalars, or NULL: the training options */
    kvf_json *lineage;      /* object of scalars, or NULL: data hashes, run hash, fold check */
    struct {                /* prefix */
        kvf__prefix prefix; /* values in f32 whatever the file's dtype; layer_mask inside */
        kvf__dtype dtype;   /* type of the stored values: F32, F16, BF16 or I8 */
    };
    struct {                  /* embeddings */
        kvf__vectors vectors; /* [P, C] */
        char *pattern;        /* --p-template; NULL or "": they lead the row */
    };
    kvf__params_owned values; /* run: the encoder's, last step; adapter: adapters, then norms */
    struct {                  /* adapter */
        int64_t size;         /* of the bottleneck */
        char *activation, *placement; /* words of --adapter-activation and --adapter-placement */
    };
    struct {                    /* run; of method head the encoder has no parameters */
        uint8_t *layer_mask;    /* [L] */
        kvf__params_owned best; /* the encoder's; n = 0: no validation ran yet */
        kvf__params_owned best_head;
        int64_t best_step;
        double best_value;
        char *best_metric;      /* "valid_loss", "accuracy", ...; NULL if none */
        kvf__params_owned m, v; /* AdamW moments of encoder, then head; n = 0: imported, step 0 */
        kvf_json *state; /* object of integers and reals: step, tokens, rng_*, data position ... */
        kvf__history history;
    };
} kvf__artifact;
/* Of a run: did a validation keep a state? */
static inline bool kvf__run_has_best(const kvf__artifact *run)
{
    return run->best.params.n || run->best_head.params.n;
}
/* Not of a base. */
kvf_status kvf__artifact_write(kvf_ctx *ctx, const char *path, bool force,
                               const kvf__artifact *artifact);
/* What inference and tools need: all but moments and history of a run. Of a base: the
 * facts and head of the task that its weights were trained for; id.task is NULL if it has none. */
kvf_status kvf__artifact_read(kvf_ctx *ctx, const char *path, kvf__kind kind, kvf__artifact *out);
/* All that the file holds. */
kvf_status kvf__artifact_read_all(kvf_ctx *ctx, const char *path, kvf__kind kind,
                                  kvf__artifact *out);
/* Its identity alone. */
kvf_status kvf__artifact_identity(kvf_ctx *ctx, const char *path, kvf__kind kind,
                                  kvf__identity *out);
/* The history of a run alone. */
kvf_status kvf__artifact_history(kvf_ctx *ctx, const char *path, kvf__history *out);
void kvf__artifact_done(kvf__artifact *artifact);

/* The types by their words, "f32", "f16", "bf16", "int8". EUSAGE; NULL: no type of a prefix. */
kvf__dtype kvf__prefix_dtype(kvf_dtype dtype);
const char *kvf__prefix_dtype_name(kvf__dtype dtype);
/* What a file of that type will read back as. ENUMERIC: it cannot hold a value; `where` names the
 * prefix. */
kvf_status kvf__prefix_rounded(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                               const kvf__prefix *from, kvf__prefix *out);
/* Values of a prefix as they are stored (prefix_store.c): `values` in the dtype; scale [L, 2, G],
 * of int8 only. ENUMERIC: the dtype cannot hold one. */
size_t kvf__prefix_scales(const kvf__prefix *prefix); /* L * 2 * G */
kvf_status kvf__prefix_encode(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                              const kvf__prefix *prefix, void *values, float *scale);
void kvf__prefix_decode(kvf__dtype dtype, const void *values, const float *scale,
                        kvf__prefix *prefix);

#endif
