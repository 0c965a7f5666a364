/* The key table: the name of each number of a description in config.json and in GGUF metadata.
 * config_hf.c and config_gguf.c use it to read, config_write.c to write. Also checks of single
 * values, shared by both readers. */
#ifndef KVF_CONFIG_KEYS_H
#define KVF_CONFIG_KEYS_H

#include "names.h"

/* A config.json, or the metadata of a GGUF. */
typedef struct kvf__config {
    kvf_ctx *ctx;
    const char *where;
    const kvf_json *root;
    const char *gguf; /* general.architecture, the first part of its keys; NULL: a config.json */
} kvf__config;

/* ---- the table ------------------------------------------------------------------------------- */

typedef enum kvf__config_kind {
    KVF__CONFIG_SIZE,   /* int64_t, named by a kvf__config_key of the family */
    KVF__CONFIG_SWITCH, /* bool, named by the family (NULL: fixed by its row); a GGUF has the tensor
                           `gguf` instead */
    KVF__CONFIG_FLAG,   /* as SWITCH, but a GGUF has the key `gguf` */
    KVF__CONFIG_TOKEN   /* int32_t, `name` in every config.json; -1: none */
} kvf__config_kind;

typedef struct kvf__config_row {
    kvf__config_kind kind;
    size_t field;     /* offset in kvf__desc */
    size_t hf;        /* offset in kvf__config_keys */
    const char *name; /* key of a token */
    const char *gguf; /* key of a size after "ARCHITECTURE."; NULL: absent from a GGUF */
    unsigned flags;
    size_t needs; /* offset in kvf__config_keys of a switch that enables it; 0: none */
} kvf__config_row;

#define KVF__CONFIG_NULLABLE 1u /* null in a config.json means KVF__DERIVED */
#define KVF__CONFIG_DERIVED  2u /* absence from a GGUF means KVF__DERIVED */

enum { KVF__CONFIG_ROWS = 19, KVF__ACT_NAMES = 9 };
extern const kvf__config_row kvf__config_rows[KVF__CONFIG_ROWS];

/* Names of activations; the first name of a function is used for writing. */
typedef struct kvf__act_name {
    const char *name;
    kvf__act_fn fn;
} kvf__act_name;
extern const kvf__act_name kvf__act_names[KVF__ACT_NAMES];

/* Returns the name at `offset` of kvf__config_keys (for a size, the first name of its
 * kvf__config_key); NULL: the family has none. */
const char *kvf__hf_name(const kvf__desc *desc, size_t offset);

/* ---- values ---------------------------------------------------------------------------------- */

/* Reports "WHERE: KEY is VALUE, expected EXPECTED"; returns status. */
kvf_status kvf__config_bad(const kvf__config *c, kvf_status status, const char *key,
                           const kvf_json *value, const char *expected);
/* Returns the key as in the file: "llama.block_count" for "block_count" in a GGUF. */
const char *kvf__config_name(const kvf__config *c, const char *key, char full[KVF__NAME_BYTES]);
kvf_status kvf__config_missing(const kvf__config *c, const char *key);
/* Reads a present value as a positive 32-bit integer; name: for messages. EUNSUPPORTED: a list, by
 * which a GGUF may give a value per layer. */
kvf_status kvf__config_count(const kvf__config *c, const char *name, const kvf_json *value,
                             int64_t *out);
/* Reads a finite number of `object`. If absent (or null in a config.json): `otherwise`, or EFORMAT
 * if that is NAN. */
kvf_status kvf__config_real(const kvf__config *c, const kvf_json *object, const char *key,
                            double otherwise, double *out);
/* Reads a switch of a config.json; null counts as absent. */
kvf_status kvf__config_switch(const kvf__config *c, const char *key, bool otherwise, bool *out);
/* Reads a size by its table row. */
kvf_status kvf__config_size(const kvf__config *c, const kvf__desc *desc, const kvf__config_row *row,
                            int64_t *out);
/* Computes the derived sizes, after all others were read. */
kvf_status kvf__config_derive(const kvf__config *c, kvf__desc *desc);
/* Fills desc->position.relative from a config.json, and the scale of scores. Needs
 * desc->position.max and D (config_relative.c). */
kvf_status kvf__config_relative(const kvf__config *c, kvf__desc *desc);
/* Appends the decoder's layers to the encoder's, two for each of its blocks. Needs V, ids.start and
 * ids.pad. */
kvf_status kvf__config_stacks(const kvf__config *c, kvf__desc *desc, int64_t blocks);
/* Fills desc->position.relative for T5's bias, and the factor before the head. */
kvf_status kvf__config_bias(const kvf__config *c, kvf__desc *desc);
/* Reads Granite's factors on embeddings, halves, logits and scores into `factors` and score_scale,
 * and divides norm_eps. */
kvf_status kvf__config_multipliers(const kvf__config *c, kvf__desc *desc);
/* Marks layers from `first` on as local, except every n-th (0: no exception). */
void kvf__config_local(kvf__desc *desc, int64_t every, int64_t first);
/* Returns whether local layers have a rope of their own. */
static inline bool kvf__config_local_rope(const kvf__desc *desc)
{
    return desc->arch->keys->local.theta || desc->arch->keys->local.unscaled;
}
/* EFORMAT: a list under this name does not have every layer. */
kvf_status kvf__config_covers(const kvf__config *c, const char *name, const kvf_json *list,
                              const kvf__desc *desc);
/* Marks every n-th layer as one without rope. */
void kvf__config_no_rope(kvf__desc *desc, int64_t every);
/* Reads per-layer overrides of a config.json. Needs the local layers (config_layers.c).
 * position.rotated becomes that of non-local layers. */
kvf_status kvf__config_layers(const kvf__config *c, kvf__desc *desc);
/* Reads a hybrid's layers without attention, and the heads of a GGUF's list; adjusts F
 * (config_mixer.c). */
kvf_status kvf__config_mixer(const kvf__config *c, kvf__desc *desc);
/* Fills desc->position.rope from a config.json. Needs desc->position.max. */
kvf_status kvf__config_rope(const kvf__config *c, kvf__desc *desc);
/* Completes longrope from its divisors, original length and attention factor. */
kvf_status kvf__config_long(const kvf__config *c, kvf__desc *desc);

#endif
