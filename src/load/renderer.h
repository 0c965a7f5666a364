/* Conversion of rows to ids for a base, as in the training of a prefix. */
#ifndef KVF_RENDERER_H
#define KVF_RENDERER_H

#include "data_int.h"
#include "open_prefix.h"

/* A render with the objects that it borrows. */
typedef struct kvf__renderer {
    kvf__chat chat;
    kvf__field_map map;
    kvf__row_template pattern; /* template of render, if it has one */
    kvf__render render;
} kvf__renderer;
/* template_name: as --chat-template (NULL: auto); map_text: as --map. The address of *out must not
 * change afterwards. */
kvf_status kvf__renderer_init(kvf_ctx *ctx, const kvf_base *base, const char *template_name,
                              const char *map_text, kvf__renderer *out);
/* Adds virtual tokens to rows: at the places in the text of --p-template, or (NULL, "") P at the
 * start. next: [MASK] means the next token at the end instead of a mask token. EUSAGE also for
 * [MASK] on a base without one. */
kvf_status kvf__renderer_pattern(kvf_ctx *ctx, kvf__renderer *renderer, const char *text, int64_t P,
                                 bool next);
const char *kvf__map_of(const kvf_prefix *prefix); /* --map of its run; NULL: none */
/* Initialises as in the training of `prefix` (NULL: none); template_name NULL: the prefix's own
 * template; map_text NULL or "": the map of its run. */
kvf_status kvf__renderer_for(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                             const char *template_name, const char *map_text, kvf__renderer *out);
/* Renders prompts as turns of a chat, like the rows that the prefix was trained on. Does nothing if
 * a template is named or those rows were no chats. */
void kvf__renderer_follow(kvf__renderer *renderer, const kvf_prefix *prefix,
                          const char *template_name);
void kvf__renderer_done(kvf__renderer *renderer);

#endif
