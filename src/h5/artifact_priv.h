/* What a kind of file is, and the parts that files are made of. For src/h5 and inspect.
 *
 * What is read belongs to the caller on failure too: it may be half read. */
#ifndef KVF_ARTIFACT_PRIV_H
#define KVF_ARTIFACT_PRIV_H

#include "artifact.h"
#include "h5.h"

/* One kind of file (artifact.c lists them). Members are called in this order; NULL: the kind has
 * nothing of that. */
typedef struct kvf__kind_row {
    const char *name;   /* kvfold_kind */
    const char *object; /* the group that holds the values; its attributes are the identity */
    bool masked;        /* the identity is followed by layer_mask */
    bool optional;      /* a file may have no identity */
    /* Refuses, before anything is written, what could not be read back. */
    kvf_status (*check)(kvf_ctx *ctx, const char *path, const kvf__artifact *a);
    /* Makes the object with its values; to be released. */
    kvf__h5_id (*write)(kvf__h5 *h5, const kvf__artifact *a);
    void (*write_attrs)(kvf__h5 *h5, kvf__h5_id at,
                        const kvf__artifact *a);             /* after the identity */
    void (*write_rest)(kvf__h5 *h5, const kvf__artifact *a); /* after the head */
    /* The dataset whose attributes are the identity instead of the group's; its shape is that of a
     * prefix. */
    kvf__h5_data (*open)(kvf__h5 *h5);
    void (*read)(kvf__h5 *h5, const kvf__h5_data *at, kvf__artifact *a); /* after the identity */
    void (*read_rest)(kvf__h5 *h5, bool all, kvf__artifact *a);          /* after the head */
} kvf__kind_row;
extern const kvf__kind_row kvf__run_row, kvf__prefix_row, kvf__embeddings_row, kvf__adapter_row;

/* ---- whole files (artifact.c) ---------------------------------------------------------------- */

/* *kind: ANY becomes that of the file. */
kvf__h5 kvf__artifact_open(kvf_ctx *ctx, const char *path, kvf__kind *kind);
typedef enum kvf__read_part { KVF__READ_IDENTITY, KVF__READ_VALUES, KVF__READ_ALL } kvf__read_part;
/* From an open file of kind a->kind. Returns the object that has the identity; its id is to be
 * released. */
kvf__h5_data kvf__artifact_read_from(kvf__h5 *h5, kvf__read_part what, kvf__artifact *a);
/* [L]: of a run its own, of a prefix that in its values; NULL: it has none. */
const uint8_t *kvf__artifact_mask(const kvf__artifact *a);
/* Returns the features that the content needs, bits of kvf__feature. */
unsigned kvf__artifact_features(const kvf__artifact *a);
/* All but the values, which `at` holds already. */
void kvf__artifact_write_facts(kvf__h5 *h5, kvf__h5_id at, const kvf__artifact *a);

/* ---- identity (identity.c) ------------------------------------------------------------------- */

/* base_* on the root, the rest on `at`; L, G, P, D too where with_shape. */
void kvf__identity_write(kvf__h5 *h5, kvf__h5_id at, bool with_shape, const kvf__identity *id);
/* shape: the dataset of a prefix, which has L, G, P, D; NULL: they are attributes. */
void kvf__identity_read(kvf__h5 *h5, kvf__h5_id at, const kvf__h5_data *shape, kvf__identity *id);
/* Sets what `inspect` shows of it. */
void kvf__identity_describe(const kvf__identity *id, kvf_json *attributes);
/* [L] of 0 and 1. */
uint8_t *kvf__mask_read(kvf__h5 *h5, kvf__h5_id at, int64_t L);

/* ---- groups of parameters (param_group.c) ---------------------------------------------------- */

/* More than any model has: a hostile file is refused before its names are read. */
enum { KVF__MOST_PARAMS = 65536 };

/* All f32 of rank 1 to 4. Returns the group, to be released. */
kvf__h5_id kvf__param_group_write(kvf__h5 *h5, kvf__h5_id parent, const char *name,
                                  const kvf__params *params);
/* except: a child that is no parameter, NULL if all are. */
void kvf__param_group_read(kvf__h5 *h5, kvf__h5_id group, const char *except,
                           kvf__params_owned *out);
/* Adds those of one of several tasks, as "TASK/parameter"; it may have none. */
void kvf__param_group_read_task(kvf__h5 *h5, kvf__h5_id group, const char *task, const char *except,
                                kvf__params_owned *out);
/* As kvf__param_group_read, where groups named as the tasks of `heads` hold theirs. */
void kvf__param_group_read_tasks(kvf__h5 *h5, kvf__h5_id group, const kvf__head_values *heads,
                                 kvf__params_owned *out);
/* Names, order and shapes of `got`, read from `group`, must be those of `whose` ("encoder"). */
void kvf__param_group_same(kvf__h5 *h5, kvf__h5_id group, const kvf__params *got,
                           const kvf__params *want, const char *whose);

/* ---- the rest -------------------------------------------------------------------------------- */

/* /head, or /heads where the task is KVF__MULTI_TASK (head_file.c). EFORMAT: a head where `task`
 * has none, or none where it has one. */
void kvf__head_write(kvf__h5 *h5, const char *task, const kvf__head_values *head);
void kvf__head_read(kvf__h5 *h5, const char *task, kvf__head_values *out);
/* Parameters of one task of several as those of a head of its own, views (head_values.c). */
kvf_status kvf__head_task_params(kvf_ctx *ctx, const kvf__head_values *head, const char *task,
                                 kvf__params *out);

/* A group's attributes as one object of scalars, and back (json_attrs.c). null is stored as NaN.
 * name: the group, made only if value is not NULL; a missing group reads as NULL. */
void kvf__attrs_write(kvf__h5 *h5, kvf__h5_id parent, const char *name, const kvf_json *value);
kvf_json *kvf__attrs_read(kvf__h5 *h5, kvf__h5_id parent, const char *name);

/* /history (run_history.c). */
void kvf__history_write(kvf__h5 *h5, const kvf__history *history);
void kvf__history_read(kvf__h5 *h5, kvf__history *history);

#endif
