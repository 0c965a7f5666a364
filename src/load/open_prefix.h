/* From a path to a prefix (read from its file, or emitted by the encoder of a run), with its head
 * or its values for the base. Also the check that it belongs to a base. */
#ifndef KVF_OPEN_PREFIX_H
#define KVF_OPEN_PREFIX_H

#include "condition.h"
#include "head.h"
#include "open_base.h"

/* The conditioning of a base: a prefix, or vectors at its input. */
struct kvf_prefix {
    kvf__artifact file; /* identity, prefix (P = 0: none) or vectors (P = 0: none) and pattern,
                           head, options, lineage; values: of the model's parameters, n = 0: none */
    kvf__train form;    /* form of the model for the values */
    kvf__task task;     /* task of file.id.task */
    char *path;
    bool from_run;
    int64_t step; /* step of the state in use; -1 for prefix files */
};

/* Makes the prefix of a file that was read, or of a run; path: its name in errors. Takes its
 * options, lineage and heads. */
kvf_status kvf__prefix_of(kvf_ctx *ctx, const char *path, kvf__artifact *file, const kvf_base *base,
                          kvf_checkpoint checkpoint, kvf_prefix **out);

/* Returns the conditioning of a prefix as views; NULL: none. */
kvf__condition kvf__prefix_condition(const kvf_prefix *prefix);

/* Returns the parts of a prefix for a file of that kind, as views. */
kvf__artifact kvf__prefix_view(const kvf_prefix *prefix, kvf__kind kind);

/* Returns the form of a model for the values of an adapter file. */
kvf_status kvf__block_form(kvf_ctx *ctx, const char *path, const kvf__artifact *adapter,
                           kvf__train *out);
/* Moves the values of a run of port block into a new prefix. */
kvf_status kvf__block_from_run(kvf_ctx *ctx, const char *path, kvf__artifact *run, bool best,
                               kvf_prefix *prefix);
/* Copies the base's part of a run that trained it together with an encoder (--unfreeze base): the
 * values that are not the encoder's; none without that option. */
kvf_status kvf__block_beside(kvf_ctx *ctx, const kvf_json *options, const kvf__params *values,
                             const kvf__params *encoder, kvf_prefix *prefix);
/* Copies values to all of the model's parameters, by name; EMISMATCH, ESHAPE: they do not match.
 * `where` names the source. */
kvf_status kvf__block_load(kvf_ctx *ctx, const char *where, const kvf__params *values,
                           kvf__model *model);
/* Compares the base named in a file with this one, without heads and carried values. A file that
 * names none (base_hash empty, accepted with allow_other_base) gets this one's name and hash. */
kvf_status kvf__identity_check(kvf_ctx *ctx, const char *path, kvf__identity *id,
                               const kvf_base *base, bool allow_other_base);
/* Sets name, architecture and hash of the base, replacing existing ones. */
kvf_status kvf__identity_stamp(kvf_ctx *ctx, kvf__identity *id, const kvf_base *base);
/* Sets L, G, D (with a base), texts, and position_start = P for foreign prefixes. */
kvf_status kvf__import_stamp(kvf_ctx *ctx, const kvf_base *base, const char *base_name,
                             const char *method, const char *task, kvf__identity *id);
/* Returns the number of virtual neurons in each layer; NULL or none: 0. */
static inline int64_t kvf__prefix_neurons(const kvf_prefix *prefix)
{
    return prefix ? prefix->file.prefix.neurons.shape.N : 0;
}
/* kvf_prefix_check without the check of carried values. */
kvf_status kvf__prefix_fits(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base,
                            bool allow_other_base);
/* Returns "base NAME". */
const char *kvf__base_words(const kvf__identity *id, char buf[256]);

/* Copies values into a head's parameters by name. EFORMAT, ESHAPE: names or shapes differ; `where`
 * names the source. */
kvf_status kvf__head_load(kvf_ctx *ctx, kvf__params *to, const char *where,
                          const kvf__params *from);
/* Creates a prefix's head on a base, dropout 0, for a language model without a gradient; *out stays
 * NULL for the base's own head. */
kvf_status kvf__prefix_head(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                            kvf__head **out);

/* Sets mask [L] to 1 for the layers of "2-5", "2" or a list ("0,2,4-7"), counted from 0, and else
 * to 0. EUSAGE: malformed, or a layer occurs twice; ESHAPE: no such layer. */
kvf_status kvf__layers_parse(kvf_ctx *ctx, const char *layers, int64_t L, uint8_t *mask);

/* Returns the capacity after a prefix (NULL: none): maximum ids of a row, and maximum without
 * virtual tokens. */
int64_t kvf__row_capacity(const kvf_base *base, const kvf_prefix *prefix);
int64_t kvf__text_capacity(const kvf_base *base, const kvf_prefix *prefix);
/* Returns whether rows have the same ids under both. */
bool kvf__prefix_same_rows(const kvf_prefix *a, const kvf_prefix *b);

#endif
