/* Writes the results of the pass on a data file, for comparison with other implementations
 * (tests/peers); built, not run, by the tests.
 *
 *     dump_pass --base PATH --data FILE.jsonl [--prefix FILE] [--run RUN] [--precision
 * f32|bf16|int8]
 * [--threads N]
 *               [--position-start N] [--share-prefixes on|off] [--hidden FILE]
 *               [--weight-dtype auto|f32|bf16|int8] [--stream-layers on|off] --out X.safetensors
 *
 * --prefix: a kvfold file, or safetensors with past_key_values [L, 2, 1, G, P, D]. --run: a run
 * file, or the state dict of an MLP encoder in safetensors; its last state emits the prefix, and
 * its parameters get gradients. All rows are one batch, in order unless common prefixes are shared
 * (off by default).
 *
 * Tensors of the output: ids, start, label_at, label_id, logits [n_labels, V], loss [1] (f64, mean
 * over labels), token_loss [n_labels], and with a prefix: prefix and dprefix [L, 2, G, P, D],
 * grad.<parameter> for a run. Gradients are those of the mean loss. With --hidden, safetensors with
 * weights [n_labels, C] and perhaps types [n_tokens], hidden [n_labels, C] (the final states of the
 * tokens before a label) takes the place of logits and losses, and gradients are those of
 * sum(hidden * weights). Chat templates are off: rows of
 * ids, or prompt and completion.
 */
#include "encoder_int.h"
#include "encoder_run.h"
#include "option_table.h"
#include "param_grad.h"
#include "renderer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char *base, *data, *prefix, *run, *precision, *threads, *position_start, *share_prefixes,
        *hidden, *weight_dtype, *stream_layers, *out;
} arguments;

#define MAX_PARAMS  64
#define MAX_TENSORS (MAX_PARAMS + 16)

typedef struct program {
    kvf_ctx *ctx;
    kvf_base *base;
    kvf__renderer renderer;
    kvf__dataset data;
    kvf__batcher batcher;
    kvf__encoder *encoder;
    kvf__prefix prefix, dprefix; /* P = 0: none */
    int64_t position_start;
    kvf__pass *pass;
    float *logits, *token_loss, *grads[MAX_PARAMS];
    kvf__weights outside;    /* of --hidden */
    float *hidden, *weights; /* NULL: the language-model head instead */
    int32_t *types;
    double loss;
    kvf__tensor tensors[MAX_TENSORS];
    size_t n_tensors;
} program;

/* ---- the prefix ------------------------------------------------------------------------------ */

static bool is_safetensors(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ".safetensors");
}

static kvf_status prefix_from_table(program *p, const char *path, const kvf__table *table)
{
    const kvf__view *view = kvf__table_find(table, "past_key_values");
    if (!view || view->rank != 6 || view->dim[1] != 2 || view->dim[2] != 1 ||
        view->dtype != KVF__F32)
        return kvf__fail(p->ctx, KVF_EFORMAT, "%s: want past_key_values [L, 2, 1, G, P, D] in f32",
                         path);
    KVF_TRY(kvf__prefix_init(p->ctx, &p->prefix, view->dim[0], view->dim[3], view->dim[4],
                             view->dim[5]));
    memcpy(p->prefix.kv, view->data, kvf__view_bytes(view));
    p->position_start = p->prefix.P;
    return KVF_OK;
}

static kvf_status prefix_from_safetensors(program *p, const char *path)
{
    kvf__weights weights = {0};
    KVF_TRY(kvf__safetensors_open(p->ctx, path, &weights));
    kvf_status st = prefix_from_table(p, path, &weights.table);
    kvf__weights_close(&weights);
    return st;
}

static kvf_status prefix_from_kvfold(program *p, const char *path)
{
    kvf_prefix *file = NULL;
    KVF_TRY(kvf_prefix_open(p->ctx, path, KVF_CHECKPOINT_LAST, &file));
    kvf_status st = kvf_prefix_check(p->ctx, file, p->base, true);
    const kvf__prefix *from = &file->file.prefix;
    if (!st) st = kvf__prefix_init(p->ctx, &p->prefix, from->L, from->G, from->P, from->D);
    if (!st) {
        memcpy(p->prefix.kv, from->kv, kvf__prefix_count(from) * sizeof(float));
        memcpy(p->prefix.layer_mask, from->layer_mask, (size_t)from->L);
        p->position_start = file->file.id.position_start;
    }
    kvf_prefix_free(file);
    return st;
}

/* ---- the encoder ----------------------------------------------------------------------------- */

static kvf_status encoder_from_table(program *p, const char *path, const kvf__table *table)
{
    const kvf__desc *d = kvf__model_desc(p->base->model);
    const kvf__view *embedding = kvf__table_find(table, "embedding.weight");
    const kvf__view *hidden = kvf__table_find(table, "transform.0.bias");
    if (!embedding || !hidden || embedding->rank != 2 || hidden->rank != 1)
        return kvf__fail(p->ctx, KVF_EFORMAT, "%s: want the state dict of an MLP encoder", path);
    kvf__encoder_shape shape = {
        .L = d->L, .G = d->G, .P = embedding->dim[0], .D = d->D, .M = hidden->dim[0]};
    KVF_TRY(kvf__encoder_create(p->ctx, "mlp", &shape, &p->encoder));
    p->position_start = shape.P;
    return kvf__encoder_read_table(p->ctx, p->encoder, path, table);
}

static kvf_status encoder_from_safetensors(program *p, const char *path)
{
    kvf__weights weights = {0};
    KVF_TRY(kvf__safetensors_open(p->ctx, path, &weights));
    kvf_status st = encoder_from_table(p, path, &weights.table);
    kvf__weights_close(&weights);
    return st;
}

static kvf_status encoder_from_kvfold(program *p, const char *path)
{
    kvf__artifact run = {0};
    int64_t step = 0;
    KVF_TRY(kvf__artifact_read(p->ctx, path, KVF__KIND_RUN, &run));
    kvf_status st = kvf__encoder_from_run(p->ctx, path, &run, p->base, KVF_CHECKPOINT_LAST,
                                          &p->encoder, &step);
    p->position_start = run.id.position_start;
    kvf__artifact_done(&run);
    return st;
}

static kvf_status emit_prefix(program *p)
{
    const kvf__encoder_shape *s = kvf__encoder_shape_of(p->encoder);
    KVF_TRY(kvf__prefix_init(p->ctx, &p->prefix, s->L, s->G, s->P, s->D));
    return kvf__encoder_fwd(p->ctx, p->encoder, (kvf__emitted){.prefix = &p->prefix});
}

static kvf_status load_prefix(program *p, const arguments *a)
{
    if (a->prefix)
        KVF_TRY(is_safetensors(a->prefix) ? prefix_from_safetensors(p, a->prefix)
                                          : prefix_from_kvfold(p, a->prefix));
    if (a->run) {
        KVF_TRY(is_safetensors(a->run) ? encoder_from_safetensors(p, a->run)
                                       : encoder_from_kvfold(p, a->run));
        KVF_TRY(emit_prefix(p));
    }
    if (a->position_start) p->position_start = strtoll(a->position_start, NULL, 10);
    if (!p->prefix.P) return KVF_OK;
    return kvf__prefix_init(p->ctx, &p->dprefix, p->prefix.L, p->prefix.G, p->prefix.P,
                            p->prefix.D);
}

/* ---- running --------------------------------------------------------------------------------- */

static kvf_status load_batch(program *p, const char *path, bool share)
{
    int64_t *rows = NULL;
    KVF_TRY(kvf__renderer_init(p->ctx, p->base, "none", NULL, &p->renderer));
    kvf__dataset_options options = {
        .render = p->renderer.render,
        .max_length = kvf__longest_row(p->base, p->position_start),
        .vocab = (int32_t)kvf__model_desc(p->base->model)->V,
    };
    KVF_TRY(kvf__dataset_load(p->ctx, path, &options, &p->data));
    const kvf__batch_rules rules = {.causal = kvf__model_desc(p->base->model)->block.causal,
                                    .share = share};
    KVF_TRY(kvf__batcher_init(p->ctx, &p->batcher, rules, p->data.n, p->data.start[p->data.n],
                              p->data.n_labels));
    KVF_TRY(kvf__alloc_array(p->ctx, (size_t)p->data.n, sizeof *rows, &rows));
    for (int64_t i = 0; i < p->data.n; i++)
        rows[i] = i;
    kvf__batcher_fill(&p->batcher, &p->data, rows, p->data.n);
    kvf__free(rows);
    return KVF_OK;
}

static kvf_status make_pass(program *p)
{
    const kvf__batch *b = &p->batcher.batch;
    const kvf__batch_sizes *s = &p->batcher.sizes;
    const kvf__pass_limits limits = {.rows = s->rows,
                                     .tokens = s->tokens,
                                     .row_len = s->row_len,
                                     .labels = s->labels,
                                     .P = p->prefix.P,
                                     .common_len = s->common_len,
                                     .common_tokens = s->common_tokens,
                                     .backward = p->prefix.P > 0};
    size_t V = (size_t)kvf__model_desc(p->base->model)->V;
    KVF_TRY(kvf__alloc_array(p->ctx, (size_t)b->n_labels * V, sizeof(float), &p->logits));
    KVF_TRY(kvf__alloc_array(p->ctx, (size_t)b->n_labels, sizeof(float), &p->token_loss));
    return kvf__pass_create(p->ctx, p->base->model, &limits, &p->pass);
}

static kvf_status read_outside(program *p, const char *path)
{
    const kvf__batch *b = &p->batcher.batch;
    KVF_TRY(kvf__safetensors_open(p->ctx, path, &p->outside));
    const kvf__view *weights = kvf__table_find(&p->outside.table, "weights");
    const kvf__view *types = kvf__table_find(&p->outside.table, "types");
    if (!weights || weights->dtype != KVF__F32 || weights->rank != 2 ||
        weights->dim[0] != b->n_labels || weights->dim[1] != kvf__model_desc(p->base->model)->C ||
        (types && (types->dtype != KVF__I32 || kvf__view_count(types) != b->n_tokens)))
        return kvf__fail(p->ctx, KVF_EFORMAT,
                         "%s: want weights [%lld labels, C] in f32, types [%lld tokens] in i32",
                         path, (long long)b->n_labels, (long long)b->n_tokens);
    KVF_TRY(kvf__alloc(p->ctx, kvf__view_bytes(weights), &p->weights));
    memcpy(p->weights, weights->data, kvf__view_bytes(weights));
    if (!types) return KVF_OK;
    KVF_TRY(kvf__alloc(p->ctx, kvf__view_bytes(types), &p->types));
    memcpy(p->types, types->data, kvf__view_bytes(types));
    p->batcher.batch.types = p->types;
    return KVF_OK;
}

static kvf_status run_head(program *p)
{
    const kvf__batch *b = &p->batcher.batch;
    double sum = 0;
    if (p->weights) {
        const float *view = NULL;
        size_t bytes = (size_t)(b->n_labels * kvf__model_desc(p->base->model)->C) * sizeof *view;
        KVF_TRY(kvf__pass_hidden(p->ctx, p->pass, &view));
        KVF_TRY(kvf__alloc(p->ctx, bytes, &p->hidden));
        memcpy(p->hidden, view, bytes);
        return p->prefix.P ? kvf__pass_hidden_grad(p->ctx, p->pass, p->weights) : KVF_OK;
    }
    KVF_TRY(kvf__pass_lm_logits(p->ctx, p->pass, p->logits));
    KVF_TRY(kvf__pass_loss(p->ctx, p->pass,
                           &(kvf__loss){.gradient = p->prefix.P > 0,
                                        .scale = (float)(1.0 / (double)b->n_labels),
                                        .token_loss = p->token_loss},
                           &sum));
    p->loss = sum / (double)b->n_labels;
    return KVF_OK;
}

static kvf_status run_pass(program *p)
{
    kvf__input input = {.batch = &p->batcher.batch,
                        .condition.prefix = p->prefix.P ? &p->prefix : NULL,
                        .condition.position_start = p->position_start};
    KVF_TRY(kvf__pass_fwd(p->ctx, p->pass, &input));
    KVF_TRY(run_head(p));
    if (!p->prefix.P) return KVF_OK;
    KVF_TRY(kvf__pass_bwd(p->ctx, p->pass, &(kvf__grads){.prefix = &p->dprefix}));
    if (!p->encoder) return KVF_OK;
    return kvf__encoder_bwd(p->ctx, p->encoder, (kvf__emitted){.prefix = &p->dprefix});
}

/* ---- writing --------------------------------------------------------------------------------- */

static void add(program *p, const char *name, const void *data, kvf__dtype dtype, int rank,
                const int64_t *dim)
{
    kvf__tensor *t = &p->tensors[p->n_tensors++];
    *t = (kvf__tensor){.name = (char *)name, .view = {.data = data, .dtype = dtype, .rank = rank}};
    memcpy(t->view.dim, dim, (size_t)rank * sizeof *dim);
}

static kvf_status write_tensors(program *p, const char *path)
{
    const kvf__batch *b = &p->batcher.batch;
    const kvf__prefix *x = &p->prefix;
    char names[MAX_PARAMS][80];
    add(p, "ids", b->ids, KVF__I32, 1, (int64_t[]){b->n_tokens});
    add(p, "start", b->start, KVF__I64, 1, (int64_t[]){b->n_rows + 1});
    add(p, "label_at", b->label_at, KVF__I32, 1, (int64_t[]){b->n_labels});
    add(p, "label_id", b->label_id, KVF__I32, 1, (int64_t[]){b->n_labels});
    const kvf__desc *d = kvf__model_desc(p->base->model);
    if (p->hidden) {
        add(p, "hidden", p->hidden, KVF__F32, 2, (int64_t[]){b->n_labels, d->C});
    } else {
        add(p, "logits", p->logits, KVF__F32, 2, (int64_t[]){b->n_labels, d->V});
        add(p, "loss", &p->loss, KVF__F64, 1, (int64_t[]){1});
        add(p, "token_loss", p->token_loss, KVF__F32, 1, (int64_t[]){b->n_labels});
    }
    if (x->P) {
        add(p, "prefix", x->kv, KVF__F32, 5, (int64_t[]){x->L, 2, x->G, x->P, x->D});
        add(p, "dprefix", p->dprefix.kv, KVF__F32, 5, (int64_t[]){x->L, 2, x->G, x->P, x->D});
    }
    const kvf__params *params = p->encoder ? kvf__encoder_params(p->encoder) : NULL;
    for (size_t i = 0; params && i < params->n; i++) {
        snprintf(names[i], sizeof names[i], "grad.%s", params->item[i].name);
        KVF_TRY(kvf__alloc_array(p->ctx, (size_t)params->item[i].n, sizeof(float), &p->grads[i]));
        param_grad(&params->item[i], p->grads[i]);
        add(p, names[i], p->grads[i], KVF__F32, params->item[i].rank, params->item[i].dim);
    }
    return kvf__safetensors_write(p->ctx, path, true, p->tensors, p->n_tensors);
}

/* ---- the program ----------------------------------------------------------------------------- */

static bool parse(int argc, char **argv, arguments *a)
{
    struct {
        const char *name, **value;
    } rows[] = {{"--base", &a->base},
                {"--data", &a->data},
                {"--prefix", &a->prefix},
                {"--run", &a->run},
                {"--precision", &a->precision},
                {"--threads", &a->threads},
                {"--position-start", &a->position_start},
                {"--share-prefixes", &a->share_prefixes},
                {"--hidden", &a->hidden},
                {"--weight-dtype", &a->weight_dtype},
                {"--stream-layers", &a->stream_layers},
                {"--out", &a->out}};
    for (int i = 1; i < argc; i += 2) {
        size_t r = 0, n = sizeof rows / sizeof *rows;
        while (r < n && strcmp(argv[i], rows[r].name))
            r++;
        if (r == n || i + 1 == argc) return false;
        *rows[r].value = argv[i + 1];
    }
    return a->base && a->data && a->out && !(a->prefix && a->run);
}

static int choose(const char *alternatives, const char *value, int otherwise)
{
    const int index = value ? kvf__choice_index(alternatives, value) : -1;
    return index < 0 ? otherwise : index;
}

static kvf_status dump(program *p, const arguments *a)
{
    kvf_base_options options = {.backward = true};
    kvf_ctx_options ctx_options = {.threads = a->threads ? atoi(a->threads) : 0};
    KVF_TRY(kvf_ctx_create(&ctx_options, &p->ctx));
    options.precision = (kvf_precision)choose("auto|f32|bf16|int8", a->precision,
                                              KVF_PRECISION_F32);
    options.weight_dtype = (kvf_weight_dtype)choose("auto|f32|bf16|int8", a->weight_dtype, 0);
    options.stream_layers = a->stream_layers && !strcmp(a->stream_layers, "on");
    KVF_TRY(kvf_base_open(p->ctx, a->base, &options, &p->base));
    KVF_TRY(load_prefix(p, a));
    KVF_TRY(load_batch(p, a->data, a->share_prefixes && !strcmp(a->share_prefixes, "on")));
    if (a->hidden) KVF_TRY(read_outside(p, a->hidden));
    KVF_TRY(make_pass(p));
    KVF_TRY(run_pass(p));
    return write_tensors(p, a->out);
}

int main(int argc, char **argv)
{
    arguments a = {0};
    program p = {0};
    if (!parse(argc, argv, &a)) {
        fputs("usage: dump_pass --base PATH --data FILE --out X.safetensors\n"
              "                 [--prefix FILE | --run RUN] [--precision f32|bf16|int8] [--threads "
              "N]\n"
              "                 [--position-start N] [--share-prefixes on|off] [--hidden FILE]\n"
              "                 [--weight-dtype auto|f32|bf16|int8] [--stream-layers on|off]\n",
              stderr);
        return 2;
    }
    kvf_status st = dump(&p, &a);
    if (st)
        fprintf(stderr, "dump_pass: %s\n", p.ctx ? kvf_ctx_error(p.ctx) : kvf_status_text(st));
    else
        printf("%lld rows, %lld labels, loss %.9f\n", (long long)p.data.n,
               (long long)p.data.n_labels, p.loss);
    kvf__free(p.logits);
    kvf__free(p.token_loss);
    kvf__free(p.hidden);
    kvf__free(p.weights);
    kvf__free(p.types);
    for (size_t i = 0; i < MAX_PARAMS; i++)
        kvf__free(p.grads[i]);
    kvf__pass_free(p.pass);
    kvf__encoder_free(p.encoder);
    kvf__prefix_done(&p.prefix);
    kvf__prefix_done(&p.dprefix);
    kvf__batcher_done(&p.batcher);
    kvf__dataset_done(&p.data);
    kvf__renderer_done(&p.renderer);
    kvf__weights_close(&p.outside);
    kvf_base_free(p.base);
    kvf_ctx_free(p.ctx);
    return st ? 1 : 0;
}
