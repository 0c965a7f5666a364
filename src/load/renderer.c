/* Conversion of rows to ids for a base: tokenizer, chat template, field names. `auto` applies the
 * base's own template to `messages` rows; a named template also wraps prompt and completion, unless
 * they are already rendered. */
#include "renderer.h"

#include <string.h>

kvf_status kvf__renderer_init(kvf_ctx *ctx, const kvf_base *base, const char *template_name,
                              const char *map_text, kvf__renderer *out)
{
    const char *name = template_name && *template_name ? template_name : "auto";
    const kvf__desc *desc = kvf__model_desc(base->model);
    kvf__renderer renderer = {0};
    if (desc->encoder && strcmp(name, "auto") && strcmp(name, "none"))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--chat-template %s: not supported on %s, an encoder-decoder", name,
                         desc->arch_name);
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
        .wrap_prompts = out->chat.kind && out->chat.kind != KVF__CHAT_RENDERED &&
                        strncmp(name, "auto", 4),
        .map = &out->map,
        .encoder = desc->encoder > 0,
        .start = desc->ids.start,
        .pad = desc->ids.pad,
    };
    return KVF_OK;
}

kvf_status kvf__renderer_pattern(kvf_ctx *ctx, kvf__renderer *renderer, const char *text, int64_t P,
                                 bool next)
{
    kvf__row_template pattern;
    KVF_TRY(kvf__row_template_init(ctx, text, P, &pattern));
    bool masked = pattern.mask >= 0,
         named = renderer->render.wrap_prompts || renderer->chat.kind == KVF__CHAT_RENDERED;
    bool wraps = named && pattern.n;
    bool last = masked && (size_t)pattern.mask + 1 == pattern.n;
    if (!wraps && (!masked || (next ? last : kvf__token_mask(renderer->render.tokenizer) >= 0))) {
        renderer->pattern = pattern;
        renderer->render.pattern = &renderer->pattern;
        return KVF_OK;
    }
    kvf__row_template_done(&pattern);
    if (wraps)
        return kvf__fail(ctx, KVF_EUSAGE, "--p-template and --chat-template exclude each other");
    return kvf__fail(ctx, KVF_EUSAGE, "--p-template \"%s\": %s", text,
                     next ? "on a causal base [MASK] must come last"
                          : "the base has no mask token");
}

const char *kvf__map_of(const kvf_prefix *prefix)
{
    return kvf_json_str(kvf_json_get(prefix->file.options, "map"), NULL);
}

kvf_status kvf__renderer_for(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                             const char *template_name, const char *map_text, kvf__renderer *out)
{
    if (!template_name && prefix) template_name = prefix->file.id.chat_template;
    const bool of_run = prefix && (!map_text || !*map_text);
    if (of_run) map_text = kvf__map_of(prefix);
    KVF_TRY(kvf__renderer_init(ctx, base, template_name, map_text, out));
    out->map.of_run = of_run;
    if (!prefix || (!prefix->file.pattern && !prefix->file.vectors.P)) return KVF_OK;
    const bool next = prefix->file.head.words && kvf__model_desc(base->model)->block.causal;
    kvf_status st = kvf__renderer_pattern(ctx, out, prefix->file.pattern, prefix->file.vectors.P,
                                          next);
    if (!st && out->pattern.P != prefix->file.vectors.P)
        st = kvf__fail(
            ctx, KVF_EFORMAT, "the template \"%s\" has %lld virtual tokens, but the file has %lld",
            prefix->file.pattern, (long long)out->pattern.P, (long long)prefix->file.vectors.P);
    if (st) kvf__renderer_done(out);
    return st;
}

const char *kvf__prefix_row_form(const kvf_prefix *prefix)
{
    return prefix && prefix->file.id.row_form ? prefix->file.id.row_form : "";
}

void kvf__renderer_follow(kvf__renderer *renderer, const kvf_prefix *prefix,
                          const char *template_name)
{
    const kvf__chat_kind kind = renderer->chat.kind;
    if (!template_name && kind != KVF__CHAT_NONE && kind != KVF__CHAT_RENDERED)
        renderer->render.wrap_prompts |= !strcmp(kvf__prefix_row_form(prefix), "chat");
}

bool kvf__prefix_same_rows(const kvf_prefix *a, const kvf_prefix *b)
{
    const char *x = a->file.pattern ? a->file.pattern : "",
               *y = b->file.pattern ? b->file.pattern : "";
    return a->file.vectors.P == b->file.vectors.P && !strcmp(x, y);
}

void kvf__renderer_done(kvf__renderer *renderer)
{
    kvf__row_template_done(&renderer->pattern);
    kvf__chat_done(&renderer->chat);
    kvf__field_map_done(&renderer->map);
}
