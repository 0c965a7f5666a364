/* Private to merge/: folding and its checks. */
#ifndef KVF_MERGE_INT_H
#define KVF_MERGE_INT_H

#include <kvfold/merge.h>

#include "open_prefix.h"

/* Returns the largest |a - b| of two prefixes with one shape. */
double kvf__prefix_max_diff(const kvf__prefix *a, const kvf__prefix *b);

/* Lineage of derived files (lineage.c). add: appends a fact and takes ownership of value. Others:
 * append the XXH3-128 of a file; compare two values; build an object of the scalars that n objects
 * (NULL: empty) share, in the order of the first, except one. */
kvf_status kvf__lineage_add(kvf_ctx *ctx, kvf_json **lineage, const char *name, kvf_json *value);
kvf_status kvf__lineage_add_hash(kvf_ctx *ctx, kvf_json **lineage, const char *name,
                                 const char *path);
bool kvf__json_same(const kvf_json *a, const kvf_json *b);
kvf_status kvf__json_common(kvf_ctx *ctx, const kvf_json *const *objects, size_t n,
                            const char *except, kvf_json **out);

/* A prefix as input of the file tools (prefix_source.c). It comes from a prefix file, from a run's
 * encoder, or from the base, run on virtual tokens at the start of rows. Methods that read the base
 * need its path (EUSAGE without). Methods that change it are EUNSUPPORTED. */
typedef struct kvf__prefix_source {
    const char *path;
    const char *base; /* NULL: none */
    const char *lora; /* LoRA folder of base; NULL: none */
    const char *head; /* several tasks: the task to use; NULL: keep all */
    kvf_checkpoint checkpoint;
    bool allow_other_base;
} kvf__prefix_source;
/* Initialises a source from a tool's options, whose members have the same names. */
#define KVF__PREFIX_SOURCE(options, file)                                                          \
    {                                                                                              \
        .path = (file), .base = (options)->base, .lora = (options)->lora, .head = (options)->head, \
        .checkpoint = (options)->checkpoint, .allow_other_base = (options)->allow_other_base       \
    }
/* Opens the prefix of a file, or of its encoder's output. A named base must match the prefix. */
kvf_status kvf__prefix_source_open(kvf_ctx *ctx, const kvf__prefix_source *source,
                                   kvf_prefix **out);
/* Opens the file as keys and values; virtual tokens are folded. */
kvf_status kvf__prefix_source_read(kvf_ctx *ctx, const kvf__prefix_source *source,
                                   kvf_prefix **out);
/* [L, 2, 1, G, P, D]; G and D are 0 where layers differ */
void kvf__kv_prefix_shape(const kvf_prefix *prefix, int64_t shape[6]);
/* Measures the rounding error of a file type: largest difference of a value, and relative L2 error
 * (unless NULL). ENUMERIC: a value exceeds the range of the type; where names the prefix. */
kvf_status kvf__rounding_diff(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                              const kvf__prefix *prefix, double *diff, double *relative);
kvf_status kvf__kv_prefix_store(kvf_ctx *ctx, const kvf_prefix *prefix, const char *path,
                                bool force, kvf__dtype dtype);
/* Writes the prefix file and measures its rounding. *bytes: size of the file. */
kvf_status kvf__kv_prefix_write(kvf_ctx *ctx, const kvf_prefix *prefix, const char *path,
                                bool force, kvf__dtype dtype, int64_t *bytes, double *diff);

/* Returns whether two heads are equal bit for bit. */
bool kvf__same_head(const kvf__head_values *a, const kvf__head_values *b);
/* Writes the base file of a run of method full and reads it back (fold_base.c). */
kvf_status kvf__fold_base(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live,
                          kvf_merge_result *result);

/* Folds the base of a run that also trained virtual tokens: writes options->out_base. Afterwards
 * `live` consists of the virtual tokens for that base only. */
kvf_status kvf__fold_trained_base(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live);

/* Writes the slots as weights of a base file (write_base.c), replaced by `values` of the same name
 * (NULL: none). Copies of tied weights and other surplus are omitted. */
kvf_status kvf__base_write_slots(kvf_ctx *ctx, const kvf__slots *slots, const kvf__params *values,
                                 const char *out, bool force, kvf__base_file *file);
/* Writes a base file of the base's weights, replaced by `values` of the same name. task: its head,
 * which receives the hash of the new weights; NULL: none. */
kvf_status kvf__base_from_values(kvf_ctx *ctx, const kvf_base *base, const kvf__params *values,
                                 kvf__artifact *task, const char *out, bool force);

/* Sets *out: whether a prefix can replace virtual tokens at the input (capture.c). */
kvf_status kvf__captures(kvf_ctx *ctx, const kvf_prefix *live, bool *out);
/* Runs options->base on the virtual tokens, after which `live` is a prefix. *diff: relative
 * difference of a row's final state. */
kvf_status kvf__capture(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                        double *diff);
/* Writes the embeddings file and reads it back, for other virtual tokens. */
kvf_status kvf__fold_embeddings(kvf_ctx *ctx, const kvf_merge_options *options,
                                const kvf_prefix *live, kvf_merge_result *result);

/* Opens base and rows of the probe before anything is written. */
typedef struct kvf__fold_probe kvf__fold_probe;
kvf_status kvf__fold_probe_create(kvf_ctx *ctx, const kvf_merge_options *options,
                                  const kvf_prefix *live, kvf__fold_probe **out);
void kvf__fold_probe_free(kvf__fold_probe *probe);

/* Runs the rows through the base under both prefixes. *max_abs_diff: of the logits at labelled
 * positions. */
kvf_status kvf__fold_probe_compare(kvf__fold_probe *probe, const kvf__prefix *live,
                                   const kvf__prefix *stored, double *max_abs_diff);

/* Reads the written file back and compares it (verify.c). EINTERNAL: it differs from the folded
 * values. expected: allowed rounding error; probe NULL: none. */
kvf_status kvf__verify_prefix(kvf_ctx *ctx, const char *path, const kvf_prefix *live,
                              double expected, kvf__fold_probe *probe, kvf_merge_result *result);
kvf_status kvf__verify_adapter(kvf_ctx *ctx, const char *path, const kvf_prefix *live);
kvf_status kvf__verify_embeddings(kvf_ctx *ctx, const char *path, const kvf_prefix *live);
/* task: expected head, NULL: none. */
kvf_status kvf__verify_base(kvf_ctx *ctx, const char *path, const kvf_prefix *live,
                            const kvf__artifact *task);

#endif
