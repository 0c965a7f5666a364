/* Finding entities in a row of tags: between entity_scan.c, which knows the schemes, and
 * entities.c, which counts. */
#ifndef KVF_ENTITY_SCAN_H
#define KVF_ENTITY_SCAN_H

#include "map.h"
#include "metric_int.h"

/* Words first..last of one entity; type indexes the list of names. Lists are ordered by `last`,
 * which no two entities of one side share. */
typedef struct kvf__entity {
    int64_t first, last;
    int32_t type;
} kvf__entity;

/* Where entities go; the names of types are shared by the gold and the predicted side. */
typedef struct kvf__entity_list {
    kvf__entity_scores *scores; /* its types grow */
    kvf__map *names;
    kvf__entity *data; /* [words] */
    size_t n;
} kvf__entity_list;

/* Adds the entities of one side. scheme: not AUTO. EDATA as kvf__entities(). */
kvf_status kvf__entity_scan(kvf_ctx *ctx, kvf__entity_list *list, const kvf__tag_rows *rows,
                            const char *const *tags, kvf__tag_scheme scheme);
/* seqeval's guess from the prefixes that occur; MIXED: there is none. */
kvf__tag_scheme kvf__tag_scheme_guess(const kvf__tag_rows *rows);

#endif
