/* Writes a base as a transformers folder, with the virtual neurons of a prefix folded into its
 * feed-forward matrices if one is given (docs/maths.md). A neuron is a row of the block's first
 * matrix and a column of its last, so the folder is an ordinary model whose blocks are N wider. Old
 * values keep their type, and new ones are rounded to it. */
#include "arch.h"
#include "export.h"
#include "names.h"
#include "outfile.h"
#include "outfolder.h"
#include "slot.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define CACHE "past_key_values.safetensors"

/* A folder while it is made. */
typedef struct making {
    kvf_ctx *ctx;
    const kvf_export_options *options;
    const kvf_base *base;
    const kvf_prefix *prefix;    /* NULL: the base alone */
    const kvf__neurons *neurons; /* of the prefix; NULL: none */
    const kvf__base_file *texts; /* tokenizer files */
    kvf__tensor *tensors;        /* [slots] */
    void **memory; /* [slots] of tensors that are not views of the file; NULL: it is */
    char *config, *card;
} making;

/* ---- weights --------------------------------------------------------------------------------- */

/* Writes n values, `stride` apart, in the type. */
static kvf_status put(kvf_ctx *ctx, kvf__dtype dtype, const float *values, int64_t stride,
                      int64_t n, char *to)
{
    for (int64_t i = 0; i < n; i++) {
        const float value = values ? values[i * stride] : 0;
        if (!(fabsf(value) < kvf__dtype_limit(dtype)))
            return kvf__fail(ctx, KVF_ENUMERIC,
                             "a neuron holds %g, which %s, the base's type, cannot store",
                             (double)value, kvf__dtype_name(dtype));
        kvf__from_f32(dtype, &value, to + (size_t)i * kvf__dtype_block_bytes(dtype), 1);
    }
    return KVF_OK;
}

/* Inserts N rows before row `at`, or N columns (by_column) before column `at`, into a tensor of one
 * or two dimensions, which moves to *memory. values: [N, columns], or [N, rows]; NULL: zeros.
 *
 * Rows are inserted into one piece, columns into a piece for each row. */
static kvf_status insert(kvf_ctx *ctx, kvf__view *view, void **memory, int64_t at, int64_t N,
                         bool by_column, const float *values)
{
    const size_t size = kvf__dtype_block_bytes(view->dtype);
    const int64_t rows = view->dim[0], columns = view->rank == 2 ? view->dim[1] : 1;
    const int64_t pieces = by_column ? rows : 1, stride = by_column ? rows : 1;
    const int64_t unit = by_column ? 1 : columns, old = by_column ? columns : rows * columns;
    const size_t before = (size_t)(at * unit) * size, added = (size_t)(N * unit) * size,
                 all = (size_t)old * size;
    const char *from = view->data;
    char *whole = NULL;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)pieces, all + added, &whole));
    kvf_status st = KVF_OK;
    for (int64_t i = 0; i < pieces && !st; i++, from += all) {
        char *to = whole + (size_t)i * (all + added);
        memcpy(to, from, before);
        st = put(ctx, view->dtype, values ? values + i : NULL, stride, N * unit, to + before);
        memcpy(to + before + added, from + before, all - before);
    }
    if (st) {
        kvf__free(whole);
        return st;
    }
    kvf__free(*memory);
    *memory = whole;
    view->data = whole;
    view->dim[by_column] += N;
    return KVF_OK;
}

/* Inserts N neurons at `at`, and N of zeros for each further time that the config's width fits into
 * the block's (Gemma 4's double layers). */
static kvf_status add(const making *m, const kvf__slot *slot, kvf__view *view, void **memory,
                      int64_t at, bool by_column, const float *values)
{
    const kvf__desc *d = kvf__model_desc(m->base->model);
    const int64_t N = m->neurons->shape.N, times = kvf__desc_layer(d, slot->layer).F / d->F;

    for (int64_t i = 1; i < times; i++)
        KVF_TRY(insert(m->ctx, view, memory, at, N, by_column, NULL));
    return insert(m->ctx, view, memory, at, N, by_column, values);
}

/* Adds the neurons to a tensor of a feed-forward block; leaves others as they are. */
static kvf_status widen(const making *m, const kvf__slot *slot, kvf__view *view, void **memory)
{
    const kvf__neurons_layer at = kvf__neurons_at(m->neurons, slot->layer);
    const int64_t rows = view->dim[0];
    const bool by_input = slot->conv1d;

    switch (slot->role) {
    case KVF__W_UP:
        return add(m, slot, view, memory, by_input ? view->dim[1] : rows, by_input,
                   at.up ? at.up : at.key);
    case KVF__W_GATE:
        return add(m, slot, view, memory, rows, false, at.key);
    case KVF__W_GATE_UP:
        KVF_TRY(add(m, slot, view, memory, rows, false, at.up));
        return add(m, slot, view, memory, rows / 2, false, at.key);
    case KVF__W_DOWN:
        return add(m, slot, view, memory, by_input ? rows : view->dim[1], !by_input, at.value);
    case KVF__W_UP_BIAS:
        return add(m, slot, view, memory, rows, false, at.bias);
    case KVF__W_GATE_BIAS:
        return add(m, slot, view, memory, rows, false, NULL);
    default:
        return KVF_OK;
    }
}

static kvf_status make_tensors(making *m)
{
    const kvf__slots *slots = &m->base->slots;

    KVF_TRY(kvf__alloc_array(m->ctx, slots->n, sizeof *m->tensors, &m->tensors));
    KVF_TRY(kvf__alloc_array(m->ctx, slots->n, sizeof *m->memory, &m->memory));
    for (size_t i = 0; i < slots->n; i++) {
        kvf__tensor *t = &m->tensors[i];
        t->name = slots->items[i].name;
        KVF_TRY(kvf__slot_plain(m->ctx, &slots->items[i], &m->memory[i], &t->view));
        if (m->neurons) KVF_TRY(widen(m, &slots->items[i], &t->view, &m->memory[i]));
    }
    return KVF_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Sets the width if the config has it under this name; returns whether it does. */
static bool set_width(const making *m, kvf_json *config, const char *name, int64_t F)
{
    if (!kvf_json_get(config, name)) return false;
    if (m->neurons) kvf_json_set(config, name, kvf_json_new_int(F));
    return true;
}

/* Sets the width in the config, under the names that it has there. */
static kvf_status make_config(making *m, const char *theirs)
{
    const kvf__desc *d = kvf__model_desc(m->base->model);
    const char *const *names = d->arch->keys->ffn.names;
    const kvf__mixer_keys *mixer = d->arch->keys->mixer;
    const int64_t F = d->F + (m->neurons ? m->neurons->shape.N : 0);
    kvf_json *config = NULL;
    bool named = false;

    KVF_TRY(kvf_json_parse(m->ctx, m->base->path, theirs, strlen(theirs), &config));
    kvf_json *inner = kvf_json_get(config, "text_config");
    kvf_json *at = kvf_json_typeof(inner) == KVF_JSON_OBJECT ? inner : config;
    for (size_t i = 0; i < 3 && names[i]; i++)
        named |= set_width(m, at, names[i], F);
    if (!named && m->neurons) kvf_json_set(at, names[0], kvf_json_new_int(F));
    set_width(m, at, "decoder_ffn_dim", F);   /* BART: one for each stack */
    if (m->neurons && mixer && mixer->ffn[0]) /* LFM2: the width as it is */
        kvf_json_set(at, mixer->ffn[0], kvf_json_new_bool(false));
    char *text = kvf_json_text(config, KVF_JSON_INDENT);
    const kvf_status st = text ? kvf__strdup(m->ctx, text, &m->config)
                               : kvf__fail(m->ctx, KVF_ENOMEM, "out of memory");
    kvf_json_text_free(text);
    kvf_json_free(config);
    return st;
}

static kvf_status make_card(making *m)
{
    const kvf__identity *id = m->prefix ? &m->prefix->file.id : NULL;
    const kvf__desc *d = kvf__model_desc(m->base->model);
    const char *class = d->encoder        ? "AutoModelForSeq2SeqLM"
                        : d->block.causal ? "AutoModelForCausalLM"
                                          : "AutoModel";

    const char *with_cache =
        m->prefix && m->prefix->file.prefix.P
            ? "\nThe keys and values of the prefix are a cache, which each call needs anew:\n\n"
              "```python\nimport inspect, torch\nfrom safetensors.torch import load_file\n"
              "from transformers import DynamicCache\n\n"
              "kv = load_file(\"FOLDER/" CACHE "\")[\"past_key_values\"]\n"
              "ids = tokenizer(\"Internet, noun:\", return_tensors=\"pt\").input_ids\n"
              "name = \"cache\" if \"cache\" in inspect.signature(model.forward).parameters "
              "else \"past_key_values\"\n"
              "out = model.generate(ids, max_new_tokens=40, do_sample=False,\n"
              "                     attention_mask=torch.ones(1, kv.shape[4] + ids.shape[1]),\n"
              "                     **{name: DynamicCache([(k, v) for k, v in kv])})\n"
              "print(tokenizer.decode(out[0, ids.shape[1]:]))\n```\n"
            : "";

    if (!m->neurons)
        return kvf__asprintf(m->ctx, &m->card, "# %s\n\nWritten by kvfold " KVF_VERSION "%s%s.\n",
                             kvf_base_name(m->base),
                             m->base->lora ? ", with this LoRA folded in: " : "",
                             m->base->lora ? m->base->lora : "");
    return kvf__asprintf(
        m->ctx, &m->card,
        "# %s with %lld virtual neurons in each layer\n\n"
        "kvfold " KVF_VERSION " folded the neurons of %s (method %s, task %s) into the "
        "feed-forward matrices.\nThe model is an ordinary one that is %lld wider:\n\n"
        "```python\nfrom transformers import %s, AutoTokenizer\n\n"
        "model = %s.from_pretrained(\"FOLDER\")\n"
        "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n```\n%s",
        kvf_base_name(m->base), (long long)m->neurons->shape.N, m->prefix->path, id->method,
        id->task, (long long)m->neurons->shape.N, class, class, with_cache);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static kvf_status write_text(kvf_ctx *ctx, const char *path, bool force, const void *user)
{
    const making *m = user;
    const char *name = strrchr(path, '/') + 1;
    const char *text = !strcmp(name, "config.json") ? m->config
                       : !strcmp(name, "README.md") ? m->card
                                                    : kvf__base_text_find(m->texts, name);
    return kvf__write_file(ctx, path, force, text, strlen(text));
}

static kvf_status write_weights(kvf_ctx *ctx, const char *path, bool force, const void *user)
{
    const making *m = user;
    return kvf__safetensors_write(ctx, path, force, m->tensors, m->base->slots.n);
}

/* Writes keys and values in f32, or removes those of an earlier export. */
static kvf_status write_cache(kvf_ctx *ctx, const char *path, bool force, const void *user)
{
    const making *m = user;

    if (!m->prefix || !m->prefix->file.prefix.P) return kvf__remove_file(ctx, path);
    const kvf__prefix *p = &m->prefix->file.prefix;
    const kvf__tensor cache = {
        .name = (char *)"past_key_values",
        .view = {
            .data = p->kv, .dtype = KVF__F32, .rank = 6, .dim = {p->L, 2, 1, p->G, p->P, p->D}}};
    return kvf__safetensors_write(ctx, path, force, &cache, 1);
}

static kvf_status write_folder(const making *m)
{
    static const kvf__folder_file FIRST[] = {{"config.json", write_text},
                                             {"model.safetensors", write_weights},
                                             {"README.md", write_text},
                                             {CACHE, write_cache}};
    enum { OWN = sizeof FIRST / sizeof FIRST[0] };
    kvf__folder_file *files = NULL;

    KVF_TRY(kvf__alloc_array(m->ctx, OWN + m->texts->n_texts, sizeof *files, &files));
    memcpy(files, FIRST, sizeof FIRST);
    for (size_t i = 0; i < m->texts->n_texts; i++)
        files[OWN + i] = (kvf__folder_file){m->texts->texts[i].name, write_text};
    const kvf__folder folder = {files, OWN + m->texts->n_texts, "model files"};
    const kvf_status st = kvf__write_folder(m->ctx, m->options->out, m->options->force, &folder, m);
    kvf__free(files);
    return st;
}

static void making_done(making *m)
{
    for (size_t i = 0; m->memory && i < m->base->slots.n; i++)
        kvf__free(m->memory[i]);
    kvf__free(m->memory);
    kvf__free(m->tensors);
    kvf__free(m->config);
    kvf__free(m->card);
}

/* Writes the folder of an open base. */
static kvf_status export_base(kvf_ctx *ctx, const kvf_export_options *options, const kvf_base *base,
                              const kvf_prefix *prefix)
{
    making m = {.ctx = ctx, .options = options, .base = base, .prefix = prefix};
    kvf__base_file found = {0}, made = {0};

    if (prefix) m.neurons = &prefix->file.prefix.neurons;
    kvf_status st = kvf__transformers_texts(ctx, base->path, &found, &made);
    m.texts = made.n_texts ? &made : &found;
    if (!st && !found.config) st = kvf__fail(ctx, KVF_EFORMAT, "%s: has no config", base->path);
    if (!st) st = make_config(&m, found.config);
    if (!st) st = make_card(&m);
    if (!st) st = make_tensors(&m);
    if (!st) st = write_folder(&m);
    making_done(&m);
    kvf__base_file_done(&made);
    kvf__base_file_done(&found);
    return st;
}

kvf_status kvf__export_transformers(kvf_ctx *ctx, const kvf_export_options *options)
{
    const char *path = options->base ? options->base : options->path;
    kvf_prefix *prefix = NULL;
    kvf_base *base = NULL;
    struct stat of_base, of_out;

    if (!stat(path, &of_base) && !stat(options->out, &of_out) && of_base.st_dev == of_out.st_dev &&
        of_base.st_ino == of_out.st_ino)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: is the base, which will not be replaced",
                         options->out);
    KVF_TRY(kvf__base_open_exact(ctx, path, options->lora, &base));
    kvf_status st = KVF_OK;
    if (options->base)
        st = kvf_prefix_open_on(ctx, options->path, base, options->checkpoint, &prefix);
    if (!st && prefix) st = kvf__identity_check(ctx, options->path, &prefix->file.id, base, false);
    if (!st && prefix) st = kvf__check_foldable(ctx, options, prefix, base);
    if (!st) st = export_base(ctx, options, base, prefix);
    kvf_prefix_free(prefix);
    kvf_base_free(base);
    return st;
}
