/* Kinds of files, and the parts of files. For src/h5 and inspect.
 *
 * After a failed read the caller still owns the result, which may be incomplete. */
#ifndef KVF_ARTIFACT_PRIV_H
#define KVF_ARTIFACT_PRIV_H

#include "artifact.h"
#include "h5.h"

/* One kind of file (listed in artifact.c). Members are called in this order; NULL: not needed. */
typedef struct kvf__kind_row {
    const char *name;   /* kvfold_kind */
    const char *object; /* group of the values; its attributes are the identity */
    bool masked;        /* layer_mask follows the identity */
    bool optional;      /* the identity is optional */
    /* Refuses content that could not be read back, before anything is written. */
    kvf_status (*check)(kvf_ctx *ctx, const char *path, const kvf__artifact *a);
    /* Writes the object with its values; the caller releases it. */
    kvf__h5_id (*write)(kvf__h5 *h5, const kvf__artifact *a);
    void (*write_attrs)(kvf__h5 *h5, kvf__h5_id at,
                        const kvf__artifact *a);             /* after the identity */
    void (*write_rest)(kvf__h5 *h5, const kvf__artifact *a); /* after the head */
    /* Opens the dataset that has the identity as attributes, instead of the group; its shape is
     * that of a prefix. */
    kvf__h5_data (*open)(kvf__h5 *h5);
    void (*read)(kvf__h5 *h5, const kvf__h5_data *at, kvf__artifact *a); /* after the identity */
    void (*read_rest)(kvf__h5 *h5, bool all, kvf__artifact *a);          /* after the head */
} kvf__kind_row;
extern const kvf__kind_row kvf__run_row, kvf__prefix_row, kvf__embeddings_row, kvf__adapter_row;

/* ---- whole files (artifact.c) ---------------------------------------------------------------- */

/* *kind ANY is replaced by the kind of the file. */
kvf__h5 kvf__artifact_open(kvf_ctx *ctx, const char *path, kvf__kind *kind);
typedef enum kvf__read_part { KVF__READ_IDENTITY, KVF__READ_VALUES, KVF__READ_ALL } kvf__read_part;
/* Reads an open file of kind a->kind. Returns the object with the identity; the caller releases its
 * id. */
kvf__h5_data kvf__artifact_read_from(kvf__h5 *h5, kvf__read_part what, kvf__artifact *a);
/* Returns the mask [L] of a run, or of a prefix's values; NULL: none. */
const uint8_t *kvf__artifact_mask(const kvf__artifact *a);
/* Returns the features required by the content, bits of kvf__feature. */
unsigned kvf__artifact_features(const kvf__artifact *a);
/* Writes everything except the values, which `at` already holds. */
void kvf__artifact_write_facts(kvf__h5 *h5, kvf__h5_id at, const kvf__artifact *a);

/* ---- identity (identity.c) ------------------------------------------------------------------- */

/* Writes base_* to the root and the rest to `at`, including L, G, P, D if with_shape. */
void kvf__identity_write(kvf__h5 *h5, kvf__h5_id at, bool with_shape, const kvf__identity *id);
/* shape: dataset of a prefix, which gives L, G, P, D; NULL: they are attributes. */
void kvf__identity_read(kvf__h5 *h5, kvf__h5_id at, const kvf__h5_data *shape, kvf__identity *id);
/* Sets the attributes that `inspect` shows. */
void kvf__identity_describe(const kvf__identity *id, kvf_json *attributes);
/* Reads the attribute `name`, [L] of 0 and 1. */
uint8_t *kvf__mask_read(kvf__h5 *h5, kvf__h5_id at, const char *name, int64_t L);

/* ---- neurons (neurons_file.c) ---------------------------------------------------------------- */

/* /prefix/neurons, in the type of a prefix's values; int8 files have them in f16. Reads those of
 * the shape *out has, with its mask; EFORMAT: a layer that the mask turns off has values. */
void kvf__neurons_write(kvf__h5 *h5, kvf__h5_id group, kvf__dtype dtype,
                        const kvf__neurons *neurons);
void kvf__neurons_read(kvf__h5 *h5, kvf__h5_id group, kvf__dtype dtype, kvf__neurons *out);
/* Rounds them to what a file of that type reads back. ENUMERIC: a value exceeds its range, or is
 * not finite. */
kvf_status kvf__neurons_round(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                              kvf__neurons *neurons);

/* ---- groups of parameters (param_group.c) ---------------------------------------------------- */

/* Upper bound for any model; more are refused before their names are read. */
enum { KVF__MOST_PARAMS = 65536 };

/* Writes f32 parameters of rank 1 to 4. Returns the group; the caller releases it. */
kvf__h5_id kvf__param_group_write(kvf__h5 *h5, kvf__h5_id parent, const char *name,
                                  const kvf__params *params);
/* except: a child that is not a parameter, or NULL. */
void kvf__param_group_read(kvf__h5 *h5, kvf__h5_id group, const char *except,
                           kvf__params_owned *out);
/* Appends the parameters of one of several tasks as "TASK/parameter"; may be empty. */
void kvf__param_group_read_task(kvf__h5 *h5, kvf__h5_id group, const char *task, const char *except,
                                kvf__params_owned *out);
/* Reads like kvf__param_group_read. Groups named like the tasks of `heads` hold the parameters of a
 * task. */
void kvf__param_group_read_tasks(kvf__h5 *h5, kvf__h5_id group, const kvf__head_values *heads,
                                 kvf__params_owned *out);
/* Checks that `got`, read from `group`, has the names, order and shapes of `want`, which belong to
 * `whose` ("encoder"). */
void kvf__param_group_same(kvf__h5 *h5, kvf__h5_id group, const kvf__params *got,
                           const kvf__params *want, const char *whose);

/* ---- the rest -------------------------------------------------------------------------------- */

/* /head, or /heads if the task is KVF__MULTI_TASK (head_file.c). EFORMAT: a head that `task` must
 * not have, or a missing one. */
void kvf__head_write(kvf__h5 *h5, const char *task, const kvf__head_values *head);
void kvf__head_read(kvf__h5 *h5, const char *task, kvf__head_values *out);
/* Returns the parameters of one of several tasks under the names of a single head, as views
 * (head_values.c). */
kvf_status kvf__head_task_params(kvf_ctx *ctx, const kvf__head_values *head, const char *task,
                                 kvf__params *out);

/* Write and read a group's attributes as one object of scalars (json_attrs.c). null is stored as
 * NaN. name: the group, made only if value is not NULL; a missing group reads as NULL. */
void kvf__attrs_write(kvf__h5 *h5, kvf__h5_id parent, const char *name, const kvf_json *value);
kvf_json *kvf__attrs_read(kvf__h5 *h5, kvf__h5_id parent, const char *name);

/* /history (run_history.c). */
void kvf__history_write(kvf__h5 *h5, const kvf__history *history);
void kvf__history_read(kvf__h5 *h5, kvf__history *history);

#endif
