/* The tokenizer of a model folder: which files are there decides.
 *
 * tokenizer.json before vocab.json + merges.txt before vocab.txt; tokenizer_config.json,
 * special_tokens_map.json and chat_template.jinja add to either. */
#include "tok_int.h"

/* Larger than any template met by a hundred, and than any merge list by ten. */
enum { MAX_TEMPLATE_BYTES = 1 << 20, MAX_MERGES_BYTES = 1 << 28 };

typedef struct folder {
    kvf_ctx *ctx;
    char *tokenizer, *vocab, *merges, *lines, *config, *map, *template; /* paths */
    kvf_json *tokenizer_json, *vocab_json, *config_json, *map_json;
    kvf__buf merges_text, lines_text, template_text;
} folder;

static void folder_done(folder *f)
{
    kvf__free(f->tokenizer);
    kvf__free(f->vocab);
    kvf__free(f->merges);
    kvf__free(f->lines);
    kvf__free(f->config);
    kvf__free(f->map);
    kvf__free(f->template);
    kvf_json_free(f->tokenizer_json);
    kvf_json_free(f->vocab_json);
    kvf_json_free(f->config_json);
    kvf_json_free(f->map_json);
    kvf__buf_done(&f->merges_text);
    kvf__buf_done(&f->lines_text);
    kvf__buf_done(&f->template_text);
}

static kvf_status name_files(folder *f, const char *dir)
{
    KVF_TRY(kvf__path_join(f->ctx, dir, "tokenizer.json", &f->tokenizer));
    KVF_TRY(kvf__path_join(f->ctx, dir, "vocab.json", &f->vocab));
    KVF_TRY(kvf__path_join(f->ctx, dir, "merges.txt", &f->merges));
    KVF_TRY(kvf__path_join(f->ctx, dir, "vocab.txt", &f->lines));
    KVF_TRY(kvf__path_join(f->ctx, dir, "tokenizer_config.json", &f->config));
    KVF_TRY(kvf__path_join(f->ctx, dir, "special_tokens_map.json", &f->map));
    return kvf__path_join(f->ctx, dir, "chat_template.jinja", &f->template);
}

/* A file that need not be there. */
static kvf_status load_optional(folder *f, const char *path, kvf_json **out)
{
    return kvf__exists(path) ? kvf_json_load(f->ctx, path, out) : KVF_OK;
}

static kvf_status build_lines(folder *f, const char *dir, kvf__tokenizer **out)
{
    if (!kvf__exists(f->lines))
        return kvf__fail(
            f->ctx, KVF_EUNSUPPORTED,
            "%s: no tokenizer.json, no vocab.txt, and not both of vocab.json and merges.txt", dir);
    KVF_TRY(kvf__read_file(f->ctx, f->lines, MAX_MERGES_BYTES, &f->lines_text));
    return kvf__tokenizer_from_vocab_txt(f->ctx, f->lines, &f->lines_text, f->config,
                                         f->config_json, f->map_json, out);
}

static kvf_status build(folder *f, const char *dir, kvf__tokenizer **out)
{
    if (kvf__exists(f->tokenizer)) {
        KVF_TRY(kvf_json_load(f->ctx, f->tokenizer, &f->tokenizer_json));
        return kvf__tokenizer_from_parts(f->ctx, f->tokenizer, f->tokenizer_json, f->config,
                                         f->config_json, f->map_json, out);
    }
    if (!kvf__exists(f->vocab) || !kvf__exists(f->merges)) return build_lines(f, dir, out);
    KVF_TRY(kvf_json_load(f->ctx, f->vocab, &f->vocab_json));
    KVF_TRY(kvf__read_file(f->ctx, f->merges, MAX_MERGES_BYTES, &f->merges_text));
    return kvf__tokenizer_from_merges(f->ctx, f->vocab, f->vocab_json, f->merges, &f->merges_text,
                                      f->config, f->config_json, f->map_json, out);
}

/* chat_template.jinja wins over the config's. */
static kvf_status add_template(folder *f, kvf__tokenizer *t)
{
    char *text = NULL;

    if (!kvf__exists(f->template)) return KVF_OK;
    KVF_TRY(kvf__read_file(f->ctx, f->template, MAX_TEMPLATE_BYTES, &f->template_text));
    KVF_TRY(kvf__strndup(f->ctx, f->template_text.data, f->template_text.n, &text));
    kvf__free(t->chat_template);
    t->chat_template = text;
    return KVF_OK;
}

kvf_status kvf__tokenizer_from_dir(kvf_ctx *ctx, const char *dir, kvf__tokenizer **out)
{
    folder f = {.ctx = ctx};
    kvf__tokenizer *t = NULL;
    kvf_status st = name_files(&f, dir);

    if (st) goto out;
    st = load_optional(&f, f.config, &f.config_json);
    if (st) goto out;
    st = load_optional(&f, f.map, &f.map_json);
    if (st) goto out;
    st = build(&f, dir, &t);
    if (st) goto out;
    st = add_template(&f, t);
    if (st) goto out;

    *out = t;
    t = NULL;
out:
    kvf__tokenizer_free(t);
    folder_done(&f);
    return st;
}
