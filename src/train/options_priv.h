/* The table of train's options, as the files that read it see it. Private to src/train. */
#ifndef KVF_OPTIONS_PRIV_H
#define KVF_OPTIONS_PRIV_H

#include "train_int.h"

typedef enum kvf__option_kind {
    KVF__TEXT,
    KVF__CHOICE,
    KVF__FLAG,
    KVF__ON_OFF,
    KVF__COUNT,
    KVF__SEED,
    KVF__REAL
} kvf__option_kind;

/* What a row means for a stored run. */
enum {
    KVF__LOCAL = 1, /* paths and what the caller wants this time: not stored */
    KVF__FREE = 2,  /* stored, but may change on --resume */
    KVF__LATER = 4, /* stored, but runs of version 0.1.0 lack it: its default then */
};

typedef struct kvf__option {
    kvf_option_row public;
    kvf__option_kind kind;
    size_t offset; /* of the field in kvf_train_options */
    unsigned rules;
} kvf__option;

/* NULL past the last. */
const kvf__option *kvf__option_at(size_t index);
/* NULL: no such option. */
const kvf__option *kvf__option_find(const char *name);
/* Notes that a row was set: its place in `given`. */
void kvf__option_mark(kvf_train_options *options, const kvf__option *row);

/* Refuses options that the method cannot honour. EUSAGE. */
kvf_status kvf__train_options_check_method(kvf_ctx *ctx, const kvf_train_options *options);

static inline void *kvf__option_field(const kvf_train_options *options, const kvf__option *row)
{
    return (char *)options + row->offset;
}

#endif
