/* The key table: which number of a description has which name in a config.json and in the metadata
 * of a GGUF. config_hf.c and config_gguf.c walk it to read, config_write.c to write. And the checks
 * of single values that both readers share. */
#ifndef KVF_CONFIG_KEYS_H
#define KVF_CONFIG_KEYS_H

#include "names.h"

/* A config.json or the metadata of a GGUF. */
typedef struct kvf__config {
    kvf_ctx *ctx;
    const char *where;
    const kvf_json *root;
    const char *gguf; /* general.architecture, which begins its keys; NULL: a config.json */
} kvf__config;

/* ---- the table ------------------------------------------------------------------------------- */

typedef enum kvf__config_kind {
    KVF__CONFIG_SIZE,   /* int64_t, by a kvf__config_key of the family */
    KVF__CONFIG_SWITCH, /* bool, by a name of the family (NULL there: fixed by its row); a GGUF has
                           the tensor `gguf` instead */
    KVF__CONFIG_FLAG,   /* the same, but a GGUF has the key `gguf` */
    KVF__CONFIG_TOKEN   /* int32_t, `name` in every config.json; -1: none */
} kvf__config_kind;

typedef struct kvf__config_row {
    kvf__config_kind kind;
    size_t field;     /* in kvf__desc */
    size_t hf;        /* in kvf__config_keys */
    const char *name; /* of a token */
    const char *gguf; /* of a size: what follows "ARCHITECTURE."; NULL: a GGUF has none */
    unsigned flags;
    size_t
        needs; /* name in kvf__config_keys of a switch without which it does not count; 0: none */
} kvf__config_row;

#define KVF__CONFIG_NULLABLE 1u /* null in a config.json means KVF__DERIVED */
#define KVF__CONFIG_DERIVED  2u /* so does its absence in a GGUF */

enum { KVF__CONFIG_ROWS = 19, KVF__ACT_NAMES = 9 };
extern const kvf__config_row kvf__config_rows[KVF__CONFIG_ROWS];

/* Activations; the first name of a function is the one that is written. */
typedef struct kvf__act_name {
    const char *name;
    kvf__act_fn fn;
} kvf__act_name;
extern const kvf__act_name kvf__act_names[KVF__ACT_NAMES];

/* The name at `offset` of kvf__config_keys, NULL: the family has none. Of a size it is the first
 * one of its kvf__config_key. */
const char *kvf__hf_name(const kvf__desc *desc, size_t offset);

/* ---- values ---------------------------------------------------------------------------------- */

/* "WHERE: KEY is VALUE, expected EXPECTED"; returns status. */
kvf_status kvf__config_bad(const kvf__config *c, kvf_status status, const char *key,
                           const kvf_json *value, const char *expected);
/* The key as the file has it: of a GGUF "llama.block_count" for "block_count". */
const char *kvf__config_name(const kvf__config *c, const char *key, char full[KVF__NAME_BYTES]);
kvf_status kvf__config_missing(const kvf__config *c, const char *key);
/* A value that is there as a positive 32-bit integer; name: for messages. A list, which a GGUF may
 * have with a value per layer, is EUNSUPPORTED. */
kvf_status kvf__config_count(const kvf__config *c, const char *name, const kvf_json *value,
                             int64_t *out);
/* A finite number of `object`; absent (and null in a config.json) gives `otherwise`, or EFORMAT if
 * that is NAN. */
kvf_status kvf__config_real(const kvf__config *c, const kvf_json *object, const char *key,
                            double otherwise, double *out);
/* Of a config.json; null is absent. */
kvf_status kvf__config_switch(const kvf__config *c, const char *key, bool otherwise, bool *out);
/* A size by its row. */
kvf_status kvf__config_size(const kvf__config *c, const kvf__desc *desc, const kvf__config_row *row,
                            int64_t *out);
/* Those that follow from others, once all were read. */
kvf_status kvf__config_derive(const kvf__config *c, kvf__desc *desc);
/* Fills desc->position.relative from a config.json, and the scale of scores; needs
 * desc->position.max and D (config_relative.c). */
kvf_status kvf__config_relative(const kvf__config *c, kvf__desc *desc);
/* The decoder's layers behind the encoder's, two for each of its blocks; V, ids.start and ids.pad
 * are there. */
kvf_status kvf__config_stacks(const kvf__config *c, kvf__desc *desc, int64_t blocks);
/* Fills desc->position.relative of T5's bias, and the factor in front of the head. */
kvf_status kvf__config_bias(const kvf__config *c, kvf__desc *desc);
/* Which layers are local: all from `first` on, but for every so-manieth (0: for none). */
void kvf__config_local(kvf__desc *desc, int64_t every, int64_t first);
/* What layers differ in, of a config.json; needs which are local (config_layers.c). Of layers that
 * are not local, position.rotated becomes that of their heads. */
kvf_status kvf__config_layers(const kvf__config *c, kvf__desc *desc);
/* Fills desc->position.rope from a config.json; needs desc->position.max. */
kvf_status kvf__config_rope(const kvf__config *c, kvf__desc *desc);
/* longrope, whose divisors, original length and attention factor are there. */
kvf_status kvf__config_long(const kvf__config *c, kvf__desc *desc);

#endif
