/* The table of train's options, as the files that read it see it. Private to src/train. */
#ifndef KVF_OPTIONS_PRIV_H
#define KVF_OPTIONS_PRIV_H

#include "trainer.h"

/* What a row means for a stored run. */
enum {
    KVF__LOCAL = 1,   /* paths and what the caller wants this time: not stored */
    KVF__FREE = 2,    /* stored, but may change on --resume */
    KVF__DISTILL = 4, /* not about storing: distill has the option, too */
};

typedef struct kvf__option {
    kvf__option_row row; /* of a field of kvf_train_options */
    unsigned rules;
    const char *methods, *task; /* that have a use for it, methods between bars; NULL: all */
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
    return (char *)options + row->row.offset;
}

#endif
