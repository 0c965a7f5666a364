/* How rows become ids for one base, the way a prefix was trained. */
#ifndef KVF_RENDERER_H
#define KVF_RENDERER_H

#include "data_int.h"
#include "open_prefix.h"

/* A render with what it views. */
typedef struct kvf__renderer {
    kvf__chat chat;
    kvf__field_map map;
    kvf__row_template pattern; /* of render, where that has one */
    kvf__render render;
} kvf__renderer;
/* template_name as of --chat-template (NULL: auto); map_text as of --map. The address of *out must
 * not change afterwards. */
kvf_status kvf__renderer_init(kvf_ctx *ctx, const kvf_base *base, const char *template_name,
                              const char *map_text, kvf__renderer *out);
/* Rows get virtual tokens: where the text of --p-template has them, or (NULL, "") P in front.
 * next: [MASK] is not that token, but what comes next, at the end. EUSAGE also for [MASK] on a base
 * without one. */
kvf_status kvf__renderer_pattern(kvf_ctx *ctx, kvf__renderer *renderer, const char *text, int64_t P,
                                 bool next);
/* As `prefix` (NULL: none) was trained; template_name NULL: by its own template. */
kvf_status kvf__renderer_for(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                             const char *template_name, const char *map_text, kvf__renderer *out);
void kvf__renderer_done(kvf__renderer *renderer);

#endif
