/* Finding entities in rows of tags: the interface of entity_scan.c, which knows the schemes, to
 * entities.c, which counts. */
#ifndef KVF_ENTITY_SCAN_H
#define KVF_ENTITY_SCAN_H

#include "map.h"
#include "metric_int.h"

/* Words first..last of an entity; type indexes the list of names. Lists are ordered by `last`,
 * which is unique per side. */
typedef struct kvf__entity {
    int64_t first, last;
    int32_t type;
} kvf__entity;

/* Result list; the gold and the predicted side share the names of types. */
typedef struct kvf__entity_list {
    kvf__entity_scores *scores; /* its types grow */
    kvf__map *names;
    kvf__entity *data; /* [words] */
    size_t n;
} kvf__entity_list;

/* Adds the entities of one side. scheme: not AUTO. EDATA as in kvf__entities(). */
kvf_status kvf__entity_scan(kvf_ctx *ctx, kvf__entity_list *list, const kvf__tag_rows *rows,
                            const char *const *tags, kvf__tag_scheme scheme);
/* Guesses the scheme from the prefixes, as seqeval does; MIXED: none fits. */
kvf__tag_scheme kvf__tag_scheme_guess(const kvf__tag_rows *rows);

#endif
