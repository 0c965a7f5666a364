/* The tokenizer of a model: which of its files are there decides.
 *
 * tokenizer.json before tokenizer.gguf.json (a GGUF's vocabulary) before vocab.json + merges.txt
 * before vocab.txt; tokenizer_config.json,
 * special_tokens_map.json and chat_template.jinja add to either. They lie in a folder, or as texts
 * in a base file. */
#include "infile.h"
#include "tok_int.h"

#include <string.h>

enum { TOKENIZER, GGUF, VOCAB, MERGES, LINES, CONFIG, SPECIAL, TEMPLATE, N_FILES };

/* Larger than any template met by a hundred, and than any merge list by ten. */
static const struct {
    const char *name;
    size_t most;
} FILES[N_FILES] = {
    [TOKENIZER] = {"tokenizer.json", 1 << 28},
    [GGUF] = {"tokenizer.gguf.json", 1 << 28},
    [VOCAB] = {"vocab.json", 1 << 28},
    [MERGES] = {"merges.txt", 1 << 28},
    [LINES] = {"vocab.txt", 1 << 28},
    [CONFIG] = {"tokenizer_config.json", 1 << 28},
    [SPECIAL] = {"special_tokens_map.json", 1 << 28},
    [TEMPLATE] = {"chat_template.jinja", 1 << 20},
};

typedef struct folder {
    kvf_ctx *ctx;
    const char *where;
    char *path[N_FILES]; /* for errors */
    bool there[N_FILES];
    kvf__buf text[N_FILES];
    kvf_json *json[N_FILES];
} folder;

static void folder_done(folder *f)
{
    for (int i = 0; i < N_FILES; i++) {
        kvf__free(f->path[i]);
        kvf__buf_done(&f->text[i]);
        kvf_json_free(f->json[i]);
    }
}

const char *kvf__tokenizer_file(size_t index)
{
    return index < N_FILES ? FILES[index].name : NULL;
}

static kvf_status parse(folder *f, int i)
{
    if (!f->there[i]) return KVF_OK;
    return kvf_json_parse(f->ctx, f->path[i], f->text[i].data, f->text[i].n, &f->json[i]);
}

static kvf_status build_lines(folder *f, kvf__tokenizer **out)
{
    if (!f->there[LINES])
        return kvf__fail(
            f->ctx, KVF_EUNSUPPORTED,
            "%s: no tokenizer.json, no vocab.txt, and not both of vocab.json and merges.txt",
            f->where);
    return kvf__tokenizer_from_vocab_txt(f->ctx, f->path[LINES], &f->text[LINES], f->path[CONFIG],
                                         f->json[CONFIG], f->json[SPECIAL], out);
}

static kvf_status build(folder *f, kvf__tokenizer **out)
{
    KVF_TRY(parse(f, CONFIG));
    KVF_TRY(parse(f, SPECIAL));
    if (f->there[TOKENIZER]) {
        KVF_TRY(parse(f, TOKENIZER));
        return kvf__tokenizer_from_parts(f->ctx, f->path[TOKENIZER], f->json[TOKENIZER],
                                         f->path[CONFIG], f->json[CONFIG], f->json[SPECIAL], out);
    }
    if (f->there[GGUF]) {
        KVF_TRY(parse(f, GGUF));
        return kvf__tokenizer_from_vocab_json(f->ctx, f->path[GGUF], f->json[GGUF], out);
    }
    if (!f->there[VOCAB] || !f->there[MERGES]) return build_lines(f, out);
    KVF_TRY(parse(f, VOCAB));
    return kvf__tokenizer_from_merges(f->ctx, f->path[VOCAB], f->json[VOCAB], f->path[MERGES],
                                      &f->text[MERGES], f->path[CONFIG], f->json[CONFIG],
                                      f->json[SPECIAL], out);
}

/* chat_template.jinja wins over the config's. */
static kvf_status add_template(folder *f, kvf__tokenizer *t)
{
    char *text = NULL;

    if (!f->there[TEMPLATE]) return KVF_OK;
    KVF_TRY(kvf__strndup(f->ctx, f->text[TEMPLATE].data, f->text[TEMPLATE].n, &text));
    kvf__free(t->chat_template);
    t->chat_template = text;
    return KVF_OK;
}

static kvf_status finish(folder *f, kvf__tokenizer **out)
{
    kvf__tokenizer *t = NULL;
    kvf_status st = build(f, &t);

    if (!st) st = add_template(f, t);
    if (st) {
        kvf__tokenizer_free(t);
        return st;
    }
    *out = t;
    return KVF_OK;
}

kvf_status kvf__tokenizer_from_dir(kvf_ctx *ctx, const char *dir, kvf__tokenizer **out)
{
    folder f = {.ctx = ctx, .where = dir};
    kvf_status st = KVF_OK;

    for (int i = 0; i < N_FILES && !st; i++) {
        st = kvf__path_join(ctx, dir, FILES[i].name, &f.path[i]);
        f.there[i] = !st && kvf__exists(f.path[i]);
        if (f.there[i]) st = kvf__read_file(ctx, f.path[i], FILES[i].most, &f.text[i]);
    }
    if (!st) st = finish(&f, out);
    folder_done(&f);
    return st;
}

kvf_status kvf__tokenizer_from_texts(kvf_ctx *ctx, const char *where, const kvf__text_file *files,
                                     size_t n, kvf__tokenizer **out)
{
    folder f = {.ctx = ctx, .where = where};
    kvf_status st = KVF_OK;

    for (int i = 0; i < N_FILES && !st; i++) {
        st = kvf__path_join(ctx, where, FILES[i].name, &f.path[i]);
        for (size_t j = 0; j < n && !st; j++) {
            if (strcmp(files[j].name, FILES[i].name) || f.there[i]) continue;
            f.there[i] = true;
            st = kvf__buf_add(ctx, &f.text[i], files[j].text, strlen(files[j].text));
        }
    }
    if (!st) st = finish(&f, out);
    folder_done(&f);
    return st;
}
