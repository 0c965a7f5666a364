/* Inside merge/: folding and its checks. */
#ifndef KVF_MERGE_INT_H
#define KVF_MERGE_INT_H

#include <kvfold/merge.h>

#include "open_prefix.h"

/* Largest |a - b| of two prefixes of one shape. */
double kvf__prefix_max_diff(const kvf__prefix *a, const kvf__prefix *b);

/* Where files made of files come from (lineage.c): one more fact (value is taken over), and as one
 * the XXH3-128 of a file's bytes; are two values alike; a new object of the scalars that n objects
 * (NULL: empty) have alike, in the order of the first, but for one. */
kvf_status kvf__lineage_add(kvf_ctx *ctx, kvf_json **lineage, const char *name, kvf_json *value);
kvf_status kvf__lineage_add_hash(kvf_ctx *ctx, kvf_json **lineage, const char *name,
                                 const char *path);
bool kvf__json_same(const kvf_json *a, const kvf_json *b);
kvf_status kvf__json_common(kvf_ctx *ctx, const kvf_json *const *objects, size_t n,
                            const char *except, kvf_json **out);

/* A prefix as the tools for files take it (prefix_source.c): a prefix file as it is, what a
 * run's encoder emits now, or what the base makes of virtual tokens that lead the row. Methods that
 * read the base want its path (EUSAGE without); those that change it are EUNSUPPORTED. */
typedef struct kvf__prefix_source {
    const char *path;
    const char *base; /* NULL: none */
    const char *lora; /* of base; NULL: none */
    const char *head; /* of several tasks: the one that is meant; NULL: all are kept */
    kvf_checkpoint checkpoint;
    bool allow_other_base;
} kvf__prefix_source;
/* Of the options of a tool, whose members have the same names. */
#define KVF__PREFIX_SOURCE(options, file)                                                          \
    {                                                                                              \
        .path = (file), .base = (options)->base, .lora = (options)->lora, .head = (options)->head, \
        .checkpoint = (options)->checkpoint, .allow_other_base = (options)->allow_other_base       \
    }
/* What the file holds, or its encoder emits now; a base that is named must be the one it is for. */
kvf_status kvf__prefix_source_open(kvf_ctx *ctx, const kvf__prefix_source *source,
                                   kvf_prefix **out);
/* The same, if it is or becomes a prefix. */
kvf_status kvf__prefix_source_read(kvf_ctx *ctx, const kvf__prefix_source *source,
                                   kvf_prefix **out);
void kvf__kv_prefix_shape(const kvf_prefix *prefix, int64_t shape[6]); /* [L, 2, 1, G, P, D], G and
                                                                          D 0 where layers differ */
/* What rounding to the type of a prefix file changes: the largest difference of a value, and the
 * root of the squared error over that of the squares, unless NULL. ENUMERIC: the type cannot hold
 * a value; where names the prefix. */
kvf_status kvf__rounding_diff(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                              const kvf__prefix *prefix, double *diff, double *relative);
kvf_status kvf__kv_prefix_store(kvf_ctx *ctx, const kvf_prefix *prefix, const char *path,
                                bool force, kvf__dtype dtype);
/* Both; *bytes: of the file. */
kvf_status kvf__kv_prefix_write(kvf_ctx *ctx, const kvf_prefix *prefix, const char *path,
                                bool force, kvf__dtype dtype, int64_t *bytes, double *diff);

/* The same head, bit for bit. */
bool kvf__same_head(const kvf__head_values *a, const kvf__head_values *b);
/* Writes the base file of a run of method full and reads it back (fold_base.c). */
kvf_status kvf__fold_base(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live,
                          kvf_merge_result *result);

/* The base's part of a run that trained virtual tokens too: writes options->out_base, after which
 * `live` are virtual tokens for that base and nothing else. */
kvf_status kvf__fold_trained_base(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live);

/* The slots as weights of a base file (write_base.c), those of which `values` (NULL: none) has
 * others, by name, with these. Copies of tied weights, and other surplus, are left out. */
kvf_status kvf__base_write_slots(kvf_ctx *ctx, const kvf__slots *slots, const kvf__params *values,
                                 const char *out, bool force, kvf__base_file *file);
/* A base file of the base's weights, where `values` has no others for them, by name. task: its
 * head, in which the hash of the new weights is filled in; NULL: there is none. */
kvf_status kvf__base_from_values(kvf_ctx *ctx, const kvf_base *base, const kvf__params *values,
                                 kvf__artifact *task, const char *out, bool force);

/* Virtual tokens at the input (capture.c): does a prefix take their place? */
kvf_status kvf__captures(kvf_ctx *ctx, const kvf_prefix *live, bool *out);
/* Runs options->base on them: `live` becomes a prefix. *diff: relative, of a row's final state. */
kvf_status kvf__capture(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                        double *diff);
/* Else: writes the embeddings file and reads it back. */
kvf_status kvf__fold_embeddings(kvf_ctx *ctx, const kvf_merge_options *options,
                                const kvf_prefix *live, kvf_merge_result *result);

/* Opens base and rows of the probe, before anything is written. */
typedef struct kvf__fold_probe kvf__fold_probe;
kvf_status kvf__fold_probe_create(kvf_ctx *ctx, const kvf_merge_options *options,
                                  const kvf_prefix *live, kvf__fold_probe **out);
void kvf__fold_probe_free(kvf__fold_probe *probe);

/* Runs the rows through the base under both prefixes; *max_abs_diff: of the logits at labelled
 * positions. */
kvf_status kvf__fold_probe_compare(kvf__fold_probe *probe, const kvf__prefix *live,
                                   const kvf__prefix *stored, double *max_abs_diff);

/* What was written is read back and compared (verify.c). EINTERNAL: it is not what was folded.
 * expected: the difference that rounding makes; probe: NULL: none. */
kvf_status kvf__verify_prefix(kvf_ctx *ctx, const char *path, const kvf_prefix *live,
                              double expected, kvf__fold_probe *probe, kvf_merge_result *result);
kvf_status kvf__verify_adapter(kvf_ctx *ctx, const char *path, const kvf_prefix *live);
kvf_status kvf__verify_embeddings(kvf_ctx *ctx, const char *path, const kvf_prefix *live);
/* task: of its head, NULL: none. */
kvf_status kvf__verify_base(kvf_ctx *ctx, const char *path, const kvf_prefix *live,
                            const kvf__artifact *task);

#endif
