/* How rows become ids for one base: its tokenizer, a chat template, foreign field names. `auto`
 * lets `messages` rows use the base's own template; a template that is named also wraps prompt and
 * completion. */
#include "load_int.h"

#include <string.h>

kvf_status kvf__renderer_init(kvf_ctx *ctx, const kvf_base *base, const char *template_name,
                              const char *map_text, kvf__renderer *out)
{
    const char *name = template_name && *template_name ? template_name : "auto";
    kvf__renderer renderer = {0};
    KVF_TRY(kvf__chat_init(ctx, base->tokenizer, name, &renderer.chat));
    kvf_status st = kvf__field_map_init(ctx, map_text, &renderer.map);
    if (st) {
        kvf__chat_done(&renderer.chat);
        return st;
    }
    *out = renderer;
    out->render = (kvf__render){
        .tokenizer = base->tokenizer,
        .chat = &out->chat,
        .wrap_prompts = strcmp(name, "auto") && strcmp(name, "none"),
        .map = &out->map,
    };
    return KVF_OK;
}

void kvf__renderer_done(kvf__renderer *renderer)
{
    kvf__chat_done(&renderer->chat);
    kvf__field_map_done(&renderer->map);
}
