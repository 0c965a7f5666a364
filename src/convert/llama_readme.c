/* README.md and check.py beside a saved sequence: how its engine loads it, how to check that the
 * prefix is in use, and what loses it silently, as tested (docs/engines.md). The texts are those of
 * engines/. In them @name@ is a value, @name?text@ is a text for a value that is not empty, and
 * @name!text@ is one for an empty value. */
#include "export.h"

#include <string.h>

/* Returns the second item of the pair with this first one, which must exist. */
static const char *find(const kvf__pair *pairs, const char *name, size_t n)
{
    while (strncmp(pairs->first, name, n) != 0 || pairs->first[n])
        pairs++;
    return pairs->second;
}

static kvf_status fill_in(kvf_ctx *ctx, const char *text, const kvf__pair *values, kvf__buf *out)
{
    for (const char *at; (at = strchr(text, '@'));) {
        const char *end = strchr(at + 1, '@'), *mark = at + 1 + strcspn(at + 1, "?!@");
        const char *found = find(values, at + 1, (size_t)(mark - at - 1));
        KVF_TRY(kvf__buf_add(ctx, out, text, (size_t)(at - text)));
        if (mark == end)
            KVF_TRY(kvf__buf_add(ctx, out, found, strlen(found)));
        else if ((*mark == '?') == (*found != 0))
            KVF_TRY(kvf__buf_add(ctx, out, mark + 1, (size_t)(end - mark - 1)));
        text = end + 1;
    }
    return kvf__buf_add(ctx, out, text, strlen(text));
}

/* Writes the ids, then BOS if texts begin with it. */
static kvf_status put_ids(kvf_ctx *ctx, const kvf__llama_export *e, kvf__buf *out)
{
    const kvf__tokenizer *t = e->base->tokenizer;

    for (size_t i = 0; i < e->ids.n; i++)
        KVF_TRY(kvf__buf_printf(ctx, out, "%d, ", (int)e->ids.data[i]));
    return kvf__adds_bos(t) ? kvf__buf_printf(ctx, out, "%d, ", (int)kvf__token_bos(t)) : KVF_OK;
}

static kvf_status put_text(kvf_ctx *ctx, const kvf__llama_export *e, const char *name,
                           const char *ids, kvf__buf *out)
{
    const kvf__llama_form *f = &e->form;
    char P[24], N[24] = "", version[24], streams[24];
    const kvf__pair values[] = {
        {"engine", e->engine->name},
        {"P", P},
        {"N", N},
        {"model", e->folds ? "model.gguf" : "MODEL.gguf"},
        {"base", e->base->name},
        {"hash", e->base->hash},
        {"version", version},
        {"streams", streams},
        {"several", f->streams == 1 ? "" : "yes"},
        {"flash", f->transposed ? "" : "on"},
        {"dtype", f->dtype == KVF__F32 ? "f32" : "f16"},
        {"f32", f->dtype == KVF__F32 ? "yes" : ""},
        {"window", f->base.window ? "yes" : ""},
        {"chat", e->template ? "yes" : ""},
        {"bos", kvf__adds_bos(e->base->tokenizer) ? "yes" : ""},
        {"ids", ids},
    };

    snprintf(P, sizeof P, "%lld", (long long)e->prefix->file.id.P);
    if (e->folds) snprintf(N, sizeof N, "%lld", (long long)e->prefix->file.id.neurons.N);
    snprintf(version, sizeof version, "%lld", (long long)f->version);
    snprintf(streams, sizeof streams, "%lld", (long long)f->streams);
    return fill_in(ctx, find(kvf__engine_texts, name, strlen(name)), values, out);
}

kvf_status kvf__llama_readme(kvf_ctx *ctx, const kvf__llama_export *export, const char *name,
                             kvf__buf *out)
{
    kvf__buf ids = {0};

    kvf_status st = put_ids(ctx, export, &ids);
    if (!st) st = put_text(ctx, export, name, ids.data, out);
    kvf__buf_done(&ids);
    return st;
}
