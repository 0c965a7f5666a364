/* distill: compresses a document into a prefix of a few virtual tokens. Context distillation (Snell
 * et al. 2022; as a cache of keys and values, Eyuboglu et al. 2025): the teacher is the base with
 * the document, the student the base with the prefix. The loss is KL(teacher || student) over the
 * teacher's likeliest tokens at each label (head_soft.c).
 *
 * The document's keys and values and the teacher's targets are computed once, so a step costs as
 * much as any step with a prefix of length P. The result is an ordinary run of train with generated
 * rows: its file, --resume and merge work as usual. */
#include "distill_int.h"
#include "hash.h"

#include <math.h>
#include <string.h>

#define POLICY_STREAM ((uint64_t)0x706f6c69) /* "poli" */

enum {
    TOP_K = 20,      /* teacher's tokens per label */
    SELF_STUDY = 96, /* default number of prompts without --data */
    ANSWER_TOKENS = 64,
    CHUNK = 128,  /* default tokens in a piece without --data */
    HELD_OUT = 8, /* hold out one row of this many, without --valid */
    STEPS = 200,
    LEAST_WINDOW = 4,
    MOST_DISTRACTORS = 64,
    QUERIES = 8192 /* most tokens of query rows for attention matching */
};

kvf_distill_options kvf_distill_defaults(void)
{
    return (kvf_distill_options){
        .train = kvf_train_defaults(), .self_study = -1, .chunk = -1, .temperature = 1};
}

typedef struct distilling {
    kvf__feed feed;
    kvf_distill_options options; /* every value is set once the rows are open */
    kvf__study_options study;
    kvf__document document;
    kvf__prefix beside; /* keys and values of the distractors; P = 0: none */
    char beside_hash[33];
    char *head; /* start of the document's text, for the initial prefix */
    char hash[33];
    kvf__teacher held_out;          /* targets of the held-out rows */
    kvf__row_list queries;          /* --init match: rows used as queries */
    int64_t first_piece, end_piece; /* range of the rows that are pieces of the document */
    char position[24];              /* text of the chosen position_start */
    double teacher_seconds;
    double kl_start, kl_prefix; /* --system-prompt: KL as in the result */
} distilling;

/* A run with generated rows. */
typedef struct fed_run {
    kvf__run *run;
    const kvf__train_rows *rows;
    kvf__fed *fed; /* NULL: rows exist already */
} fed_run;

/* ---- what is asked for ----------------------------------------------------------------------- */

static kvf_status check_train(kvf_ctx *ctx, const kvf_train_options *o)
{
    const kvf__method *method = kvf__method_find(o->method);
    KVF_TRY(kvf__options_check_distill(ctx, o));
    if (o->init && !strcmp(o->init, "match") && (o->init_from || o->init_encoder))
        return kvf__fail(ctx, KVF_EUSAGE, "--init-%s: not with --init match",
                         o->init_from ? "from" : "encoder");
    if (!method || method->port != KVF__PORT_KV)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "--method %s: distill trains keys and values only: want direct, mlp or projected",
            o->method);
    return KVF_OK;
}

/* Returns the path of the text that the prefix replaces. */
static const char *text_path(const kvf_distill_options *o)
{
    return o->system_prompt ? o->system_prompt : o->document;
}

static kvf_status check_system_prompt(kvf_ctx *ctx, const kvf_distill_options *o)
{
    if (!o->system_prompt)
        return o->on_policy ? kvf__fail(ctx, KVF_EUSAGE, "--on-policy needs --system-prompt")
                            : KVF_OK;
    const char *bad = o->document        ? "document"
                      : o->chunk > 0     ? "chunk"
                      : o->window > 0    ? "window"
                      : o->n_distractors ? "distractor"
                                         : NULL;
    if (bad) return kvf__fail(ctx, KVF_EUSAGE, "--%s is for documents, not --system-prompt", bad);
    if (strcmp(o->train.chat_template, "no-system"))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--chat-template %s: not with --system-prompt, which uses the base's own "
                         "template without its system turn",
                         o->train.chat_template);
    return KVF_OK;
}

static kvf_status check_path(kvf_ctx *ctx, const kvf_distill_options *o, const char *path)
{
    KVF_TRY(kvf__check_input(ctx, path));
    return o->train.out ? kvf__check_not_input(ctx, o->train.out, path) : KVF_OK;
}

static kvf_status check(kvf_ctx *ctx, const kvf_distill_options *o)
{
    if (!o->train.base) return kvf__fail(ctx, KVF_EUSAGE, "--base is needed");
    if (!text_path(o)) return kvf__fail(ctx, KVF_EUSAGE, "--document or --system-prompt is needed");
    KVF_TRY(check_system_prompt(ctx, o));
    if (o->kl && strcmp(o->kl, "forward") && strcmp(o->kl, "reverse"))
        return kvf__fail(ctx, KVF_EUSAGE, "--kl %s: want forward or reverse", o->kl);
    if (o->top_k < 0 || o->top_k > 256)
        return kvf__fail(ctx, KVF_EUSAGE, "--top-k %lld: want 1 to 256", (long long)o->top_k);
    if (o->window && o->window < LEAST_WINDOW)
        return kvf__fail(ctx, KVF_EUSAGE, "--window %lld: want %d or more", (long long)o->window,
                         LEAST_WINDOW);
    if (o->n_distractors > MOST_DISTRACTORS)
        return kvf__fail(ctx, KVF_EUSAGE, "--distractor: %zu files, want at most %d",
                         o->n_distractors, MOST_DISTRACTORS);
    if (!(o->temperature >= 0))
        return kvf__fail(ctx, KVF_EUSAGE, "--temperature must not be negative");
    KVF_TRY(check_path(ctx, o, text_path(o)));
    for (size_t i = 0; i < o->n_distractors; i++) {
        if (!o->distractors || !o->distractors[i])
            return kvf__fail(ctx, KVF_EUSAGE, "distractors: file %zu is NULL", i + 1);
        KVF_TRY(check_path(ctx, o, o->distractors[i]));
    }
    return check_train(ctx, &o->train);
}

/* Sets the defaults of a new run. A direct prefix of any length starts as the document. Steps
 * replace epochs, which mean little for generated rows. */
static kvf_status decide_train(kvf_ctx *ctx, bool system, kvf_train_options *o)
{
    if (system && !KVF__GIVEN(o, chat_template)) o->chat_template = "no-system";
    if (o->resume && o->out && kvf__exists(o->out)) return KVF_OK;
    if (!KVF__GIVEN(o, method)) KVF_TRY(kvf_train_set(ctx, o, "method", "direct"));
    if (!KVF__GIVEN(o, steps) && !o->steps && !KVF__GIVEN(o, epochs)) o->steps = STEPS;
    return KVF_OK;
}

static bool matches(const fed_run *t)
{
    return !t->run->output.is_resumed && !strcmp(t->run->options.init, "match");
}

/* True for a run without steps, which needs no targets. */
static bool takes_no_step(const fed_run *t)
{
    return KVF__GIVEN(&t->run->options, steps) && !t->run->options.steps;
}

/* Returns the stored number if the option was not given. */
static int64_t resumed(const fed_run *t, const char *key, int64_t given, int64_t none,
                       int64_t initial)
{
    if (given != none) return given;
    return t->run->output.is_resumed
               ? kvf_json_int(kvf_json_get(t->run->output.resumed.lineage, key), initial)
               : initial;
}

/* Sets how rows are answered and which part of the answers is learnt. */
static void decide_policy(distilling *d, const fed_run *t)
{
    kvf_distill_options *o = &d->options;
    const kvf_json *stored = t->run->output.is_resumed ? t->run->output.resumed.lineage : NULL;
    if (!o->kl) o->kl = kvf_json_str(kvf_json_get(stored, "kl"), NULL);
    if (!o->kl) o->kl = "forward";
    if (stored) o->on_policy |= kvf_json_bool(kvf_json_get(stored, "on_policy"), false);
    d->kl_start = kvf_json_real(kvf_json_get(stored, "kl_start"), NAN);
    d->kl_prefix = kvf_json_real(kvf_json_get(stored, "kl_prefix"), NAN);
}

static void decide_rows(distilling *d, const fed_run *t)
{
    kvf_distill_options *o = &d->options;
    bool data = t->run->options.data != NULL;
    o->top_k = resumed(t, "top_k", o->top_k, 0, TOP_K);
    o->self_study = resumed(t, "self_study", o->self_study, -1,
                            data || (matches(t) && takes_no_step(t)) ? 0 : SELF_STUDY);
    o->answer_tokens = resumed(t, "answer_tokens", o->answer_tokens, 0, ANSWER_TOKENS);
    if (t->run->output.is_resumed && o->temperature == 1)
        o->temperature = kvf_json_real(kvf_json_get(t->run->output.resumed.lineage, "temperature"),
                                       1);
    o->window = resumed(t, "window", o->window, 0, 0);
    o->chunk = resumed(t, "chunk", o->chunk, -1, data || o->system_prompt ? 0 : CHUNK);
    d->study = (kvf__study_options){.n = o->self_study,
                                    .max_tokens = o->answer_tokens,
                                    .temperature = o->temperature,
                                    .seed = t->run->options.seed};
}

/* ---- the run's rows -------------------------------------------------------------------------- */

/* Limits rows to the tokens that fit after the document and after the prefix. */
static kvf_status limit_rows(distilling *d, const fed_run *t)
{
    kvf_train_options *o = &t->run->options;
    int64_t capacity = kvf__longest_row(t->run->base, t->run->id.position_start);
    if (d->document.row_capacity < capacity) capacity = d->document.row_capacity;
    if (o->max_length > capacity)
        return kvf__fail(t->run->ctx, KVF_EUSAGE,
                         "--max-length %lld: at most %lld tokens fit after the document",
                         (long long)o->max_length, (long long)capacity);
    if (!o->max_length) o->max_length = capacity;
    return KVF_OK;
}

/* Sets --init: a new run starts from the document's first tokens, unless an option says otherwise.
 */
static kvf_status decide_init(distilling *d, const fed_run *t)
{
    kvf_train_options *o = &t->run->options;
    const int64_t P = t->run->id.P;
    if (!matches(t) && (t->run->output.is_resumed || KVF__GIVEN(o, init) || o->init_text ||
                        o->init_kv || o->init_from || o->init_encoder))
        return KVF_OK;
    if (P > (int64_t)d->document.ids.n)
        return kvf__fail(t->run->ctx, KVF_EUSAGE,
                         "--prefix-length %lld: the document has only %lld tokens", (long long)P,
                         (long long)d->document.ids.n);
    if (matches(t)) return KVF_OK;
    KVF_TRY(kvf__document_head(t->run->ctx, &d->document, &t->rows->renderer.render, P, &d->head));
    o->init = "text";
    o->init_text = d->head;
    return KVF_OK;
}

static kvf__chats chats_of(const distilling *d, const kvf__run *run, const kvf__train_rows *rows)
{
    return (kvf__chats){.ctx = run->ctx,
                        .base = run->base,
                        .renderer = &rows->renderer,
                        .study = &d->study,
                        .longest_prompt = run->options.max_length - d->study.max_tokens - 1};
}

/* Adds chats: user turns of a file, or of the base if path is NULL, with answers of the base that
 * reads the system prompt. */
static kvf_status add_chats(const distilling *d, const fed_run *t, const char *path,
                            kvf__row_list *rows)
{
    const kvf__chats chats = chats_of(d, t->run, t->rows);
    const kvf_prefix *prompted = d->document.context;
    kvf__dataset turns = {0};
    if (!path && !d->study.n) return KVF_OK;
    if (chats.longest_prompt < 1)
        return kvf__fail(t->run->ctx, KVF_EUSAGE,
                         "--answer-tokens %lld: leaves none of the %lld tokens of a row for a user "
                         "turn; lower it",
                         (long long)d->study.max_tokens, (long long)t->run->options.max_length);
    kvf_status st = path ? kvf__user_turns_load(&chats, &t->run->options, path, &turns)
                         : kvf__user_turns_make(&chats, prompted, d->study.n, &turns);
    if (!st) st = kvf__answer_turns(&chats, prompted, &turns, d->study.seed, rows);
    kvf__dataset_done(&turns);
    return st;
}

/* Collects chats from a file and from the base. */
static kvf_status collect_chats(const distilling *d, const fed_run *t, kvf__row_list *rows)
{
    if (t->run->options.data) KVF_TRY(add_chats(d, t, t->run->options.data, rows));
    return add_chats(d, t, NULL, rows);
}

static kvf_status collect_rows(distilling *d, const fed_run *t, kvf__row_list *rows)
{
    const kvf_distill_options *o = &d->options;
    if (o->system_prompt) return collect_chats(d, t, rows);
    if (t->rows->renderer.chat.kind == KVF__CHAT_RENDERED && (o->self_study || o->chunk))
        return kvf__fail(t->run->ctx, KVF_EUSAGE,
                         "--chat-template rendered is only for rows of --data: use it with "
                         "--self-study 0 and --chunk 0");
    if (t->run->options.data) {
        kvf__dataset set = {0};
        KVF_TRY(kvf__task_load(t->run, t->rows, t->rows->task, t->run->options.data, &set));
        kvf_status st = kvf__row_list_add_set(t->run->ctx, rows, &set);
        kvf__dataset_done(&set);
        KVF_TRY(st);
    }
    d->first_piece = (int64_t)rows->ends.n;
    if (o->chunk)
        KVF_TRY(kvf__study_chunks(t->run->ctx, &d->document, o->chunk, 2, &t->rows->renderer.render,
                                  rows));
    d->end_piece = (int64_t)rows->ends.n;
    return kvf__study_answers(t->run->ctx, t->run->base, &d->document, &t->rows->renderer,
                              &d->study, rows);
}

/* Makes a salt for the data's hash, because document and teacher decide what is learnt. */
static kvf_status make_salt(distilling *d, kvf_ctx *ctx, char salt[96])
{
    kvf__hash *hash = NULL;
    KVF_TRY(kvf__hash_create(ctx, &hash));
    kvf__hash_add(hash, d->document.ids.data, d->document.ids.n * sizeof *d->document.ids.data);
    kvf__hash_hex(hash, d->hash);
    kvf__hash_free(hash);
    snprintf(salt, 96, "%s %lld%s", d->hash, (long long)d->options.top_k, d->beside_hash);
    return KVF_OK;
}

/* Returns the stride of held-out rows; the last row of each stride is held out. */
static int64_t held_out_stride(const fed_run *t, const kvf__row_list *rows)
{
    const int64_t n = (int64_t)rows->ends.n;
    return t->run->options.valid ? n + 1 : n < HELD_OUT ? n : HELD_OUT;
}

static kvf_status load_valid(distilling *d, const fed_run *t, const char *path)
{
    kvf__row_list rows = {.longest = t->run->options.max_length};
    kvf__dataset *out = &t->fed->valid;
    if (!d->options.system_prompt) return kvf__task_load(t->run, t->rows, t->rows->task, path, out);
    kvf_status st = add_chats(d, t, path, &rows);
    if (!st) st = kvf__row_list_pick(t->run->ctx, &rows, 1, true, "", out);
    kvf__row_list_done(&rows);
    return st;
}

/* Picks the training rows. With --on-policy the buffer is sized for the longest student answer. */
static kvf_status pick_data(distilling *d, const fed_run *t, const kvf__row_list *rows,
                            int64_t stride, const char *salt)
{
    const kvf__chats chats = chats_of(d, t->run, t->rows);
    kvf__row_list padded = {0};
    kvf__dataset *data = &t->fed->data;
    if (!d->options.on_policy)
        return kvf__row_list_pick(t->run->ctx, rows, stride, false, salt, data);
    kvf_status st = kvf__pad_answers(&chats, rows, &padded);
    if (!st) st = kvf__row_list_pick(t->run->ctx, &padded, stride, false, salt, data);
    kvf__row_list_done(&padded);
    return st;
}

static kvf_status split_rows(distilling *d, const fed_run *t, const kvf__row_list *rows)
{
    char salt[96];
    const int64_t n = (int64_t)rows->ends.n, stride = held_out_stride(t, rows);
    const char *valid = t->run->options.valid;
    if (n < (valid ? 1 : 2))
        return kvf__fail(t->run->ctx, KVF_EDATA,
                         "%s: %lld training rows, want more: use --self-study, --chunk or --data",
                         text_path(&d->options), (long long)n);
    KVF_TRY(make_salt(d, t->run->ctx, salt));
    if (valid) KVF_TRY(load_valid(d, t, valid));
    KVF_TRY(pick_data(d, t, rows, stride, salt));
    return valid ? KVF_OK
                 : kvf__row_list_pick(t->run->ctx, rows, stride, true, salt, &t->fed->valid);
}

/* Collects rows to use as queries: the document itself, read a second time after itself in pieces,
 * and the training rows that are not pieces of it. */
static kvf_status ask_document(distilling *d, const fed_run *t, const kvf__row_list *rows)
{
    const kvf__render *render = &t->rows->renderer.render;
    const int64_t stride = held_out_stride(t, rows);
    d->queries.longest = rows->longest;
    KVF_TRY(kvf__study_chunks(t->run->ctx, &d->document, CHUNK, 1, render, &d->queries));
    for (int64_t r = 0; r < (int64_t)rows->ends.n; r++)
        if ((r < d->first_piece || r >= d->end_piece) && r % stride != stride - 1)
            KVF_TRY(kvf__row_list_add(t->run->ctx, &d->queries, rows, r));
    return KVF_OK;
}

/* Sets the position of the prefix. With rope its keys keep their positions, unless --position-start
 * is given. Learned positions cannot change. */
static kvf_status place(distilling *d, const fed_run *t)
{
    const int64_t T = d->document.window;
    const bool turns = kvf__model_desc(t->run->base->model)->position.kind == KVF__POS_ROPE;
    if (KVF__GIVEN(&t->run->options, position_start)) {
        if (turns || t->run->id.position_start == T) return KVF_OK;
        return kvf__fail(t->run->ctx, KVF_EUSAGE,
                         "--position-start %s: --init match needs %lld on this base, which has no "
                         "rotary positions",
                         t->run->options.position_start, (long long)T);
    }
    snprintf(d->position, sizeof d->position, "%lld", (long long)T);
    t->run->options.position_start = d->position;
    t->run->id.position_start = T;
    return KVF_OK;
}

/* Picks evenly spaced rows with at most QUERIES tokens. */
static kvf_status pick_queries(distilling *d, kvf_ctx *ctx, kvf__dataset *out)
{
    const int64_t stride = ((int64_t)d->queries.ids.n + QUERIES - 1) / QUERIES;
    return kvf__row_list_pick(ctx, &d->queries, stride, true, "", out);
}

static kvf_status start(void *user, kvf__run *run, kvf__prefix *target)
{
    distilling *d = user;
    kvf__dataset rows = {0};
    const kvf__match_source source = kvf__document_source(&d->document);
    double begin = kvf__clock();
    KVF_TRY(pick_queries(d, run->ctx, &rows));
    kvf_status st = kvf__match(run->ctx, run->base, &source, &rows, run->id.position_start, target);
    if (!st)
        kvf__run_detail(run, "prefix solved by attention matching from %lld query tokens in %.1f s",
                        (long long)rows.n_labels, kvf__clock() - begin);
    kvf__dataset_done(&rows);
    return st;
}

/* Rows of the student begin with the state after the document, as those of the teacher do. */
static const kvf__prefix *state_before(void *user)
{
    const distilling *d = user;
    return &d->document.context->file.prefix;
}

/* --on-policy: the student answers the user turns of a step, and the teacher gives the targets.
 * Depends only on student, step and seed. */
static kvf_status renew(void *user, const kvf__run *run, kvf__train_rows *rows,
                        const kvf__prefix *prefix, const int64_t *examples, int64_t n)
{
    const distilling *d = user;
    const kvf__chats chats = chats_of(d, run, rows);
    const kvf__subject teacher = kvf__document_subject(&d->document);
    kvf__rng rng = kvf__rng_make(d->study.seed,
                                 (POLICY_STREAM << 32) + (uint64_t)run->progress.step);
    kvf__row_list list = {.longest = run->options.max_length};
    kvf__dataset prompts = {0}, answered = {0};
    kvf__teacher targets = {0};
    const kvf_prefix student = {
        .task = KVF__TASK_LM,
        .step = run->progress.step,
        .file = {.kind = KVF__KIND_PREFIX, .id = run->id, .prefix = *prefix}};
    kvf_status st = kvf__prompts_of(run->ctx, &rows->now->data, examples, n, &prompts);
    if (!st) st = kvf__answer_turns(&chats, &student, &prompts, kvf__rng_u64(&rng), &list);
    if (!st) st = kvf__row_list_pick(run->ctx, &list, 1, true, "", &answered);
    if (!st)
        st = kvf__teacher_make(run->ctx, run->base, &answered, &teacher, rows->teacher.k, &targets);
    if (!st) kvf__replace_rows(&rows->now->data, examples, n, &answered);
    if (!st) kvf__teacher_replace(&rows->teacher, examples, n, &targets);
    kvf__teacher_done(&targets);
    kvf__dataset_done(&answered);
    kvf__dataset_done(&prompts);
    kvf__row_list_done(&list);
    return st;
}

static kvf_status open_distractors(distilling *d, const fed_run *t)
{
    const kvf__distractors all = {.ctx = t->run->ctx,
                                  .base = t->run->base,
                                  .paths = d->options.distractors,
                                  .n = d->options.n_distractors,
                                  .start = t->run->id.position_start};
    if (!all.n) return KVF_OK;
    if (takes_no_step(t))
        return kvf__fail(t->run->ctx, KVF_EUSAGE, "--distractor needs steps, not --steps 0");
    t->fed->beside = &d->beside;
    t->fed->n_beside = all.n;
    return kvf__distractors_open(&all, d->beside_hash, &d->beside);
}

static kvf_status make_all(distilling *d, const fed_run *t)
{
    kvf__fed *fed = t->fed;
    kvf__row_list rows = {0};
    double begin = kvf__clock();
    decide_rows(d, t);
    decide_policy(d, t);
    d->feed.renew = d->options.on_policy ? renew : NULL;
    KVF_TRY(kvf__document_open(t->run->ctx, t->run->base, text_path(&d->options),
                               d->options.system_prompt != NULL, d->options.window,
                               &t->rows->renderer.render, &d->document));
    if (matches(t)) KVF_TRY(place(d, t));
    KVF_TRY(open_distractors(d, t));
    KVF_TRY(limit_rows(d, t));
    KVF_TRY(decide_init(d, t));
    rows.longest = t->run->options.max_length;
    kvf_status st = collect_rows(d, t, &rows);
    if (!st) st = split_rows(d, t, &rows);
    if (!st && matches(t)) st = ask_document(d, t, &rows);
    kvf__row_list_done(&rows);
    KVF_TRY(st);
    const kvf__subject teacher = kvf__document_subject(&d->document);
    int64_t k = d->options.top_k;
    if (!takes_no_step(t))
        KVF_TRY(
            kvf__teacher_make(t->run->ctx, t->run->base, &fed->data, &teacher, k, &fed->teacher));
    fed->teacher.reverse = !strcmp(d->options.kl, "reverse");
    KVF_TRY(kvf__teacher_make(t->run->ctx, t->run->base, &fed->valid, &teacher, k, &d->held_out));
    d->teacher_seconds = kvf__clock() - begin;
    kvf__run_note(
        t->run, "%s: %lld tokens; %lld training rows, %lld held out; the teacher took %.1f s",
        d->options.system_prompt ? "system prompt" : "document", (long long)d->document.ids.n,
        (long long)fed->data.n, (long long)fed->valid.n, d->teacher_seconds);
    return KVF_OK;
}

static kvf_status open_rows(void *user, kvf__run *run, const kvf__train_rows *rows, kvf__fed *out)
{
    distilling *d = user;
    return make_all(d, &(fed_run){.run = run, .rows = rows, .fed = out});
}

static void add_lineage(void *user, kvf_json *lineage)
{
    const distilling *d = user;
    kvf_json_set(lineage, "document_hash", kvf_json_new_str(d->hash));
    kvf_json_set(lineage, "document_tokens", kvf_json_new_int((int64_t)d->document.ids.n));
    kvf_json_set(lineage, "window", kvf_json_new_int(d->options.window));
    kvf_json_set(lineage, "top_k", kvf_json_new_int(d->options.top_k));
    kvf_json_set(lineage, "self_study", kvf_json_new_int(d->options.self_study));
    kvf_json_set(lineage, "answer_tokens", kvf_json_new_int(d->options.answer_tokens));
    kvf_json_set(lineage, "temperature", kvf_json_new_real(d->options.temperature));
    kvf_json_set(lineage, "chunk", kvf_json_new_int(d->options.chunk));
    kvf_json_set(lineage, "kl", kvf_json_new_str(d->options.kl));
    if (d->options.n_distractors)
        kvf_json_set(lineage, "distractors", kvf_json_new_int((int64_t)d->options.n_distractors));
    if (!d->options.system_prompt) return;
    kvf_json_set(lineage, "on_policy", kvf_json_new_bool(d->options.on_policy));
    if (!isnan(d->kl_start)) kvf_json_set(lineage, "kl_start", kvf_json_new_real(d->kl_start));
    if (!isnan(d->kl_prefix)) kvf_json_set(lineage, "kl_prefix", kvf_json_new_real(d->kl_prefix));
}

/* ---- results --------------------------------------------------------------------------------- */

static kvf_status measure_all(distilling *d, const kvf__trainer_view *t, kvf__evaluator *e,
                              kvf_distill_result *r)
{
    const kvf__subject bare = {0}, document = kvf__document_subject(&d->document);
    const kvf__subject prefix = kvf__tuned_subject(t->tuned, &t->run->id, t->rows->task);
    KVF_TRY(kvf__evaluator_run(t->run->ctx, e, &bare, &r->loss_base, NULL));
    KVF_TRY(kvf__evaluator_run(t->run->ctx, e, &prefix, &r->loss_prefix, NULL));
    KVF_TRY(kvf__evaluator_run(t->run->ctx, e, &document, &r->loss_document, NULL));
    KVF_TRY(kvf__teacher_loss(t->run->ctx, &d->held_out, e, &bare, &r->kl_base));
    return kvf__teacher_loss(t->run->ctx, &d->held_out, e, &prefix, &r->kl_prefix);
}

/* Measures the held-out rows with the current parameters: every result, or d->kl_start if r is
 * NULL. */
static kvf_status measure(distilling *d, const kvf__trainer_view *t, kvf_distill_result *r)
{
    const int64_t T = d->document.context->file.prefix.P;
    const kvf__subject prefix = kvf__tuned_subject(t->tuned, &t->run->id, t->rows->task);
    const kvf__evaluator_options how = {.P = t->run->id.P > T ? t->run->id.P : T,
                                        .neurons = t->run->id.neurons.N,
                                        .share_prefixes = !t->run->options.share_off,
                                        .soft = d->held_out.k};
    kvf__evaluator *e = NULL;
    KVF_TRY(kvf__encoder_fwd(t->run->ctx, t->tuned->encoder, t->tuned->emitted));
    kvf_status st = kvf__evaluator_create(t->run->ctx, t->run->base, &t->rows->task->valid, &how,
                                          &e);
    if (!st)
        st = r ? measure_all(d, t, e, r)
               : kvf__teacher_loss(t->run->ctx, &d->held_out, e, &prefix, &d->kl_start);
    kvf__evaluator_free(e);
    return st;
}

/* Also stores the results of a system prompt in the run file. */
static kvf_status measure_best(distilling *d, kvf__trainer *trainer, kvf_distill_result *r)
{
    const kvf__trainer_view t = kvf__trainer_look(trainer);
    kvf__trainer_swap_best(trainer);
    kvf_status st = measure(d, &t, r);
    kvf__trainer_swap_best(trainer);
    r->kl_start = d->kl_start;
    if (st || !d->options.system_prompt || t.run->output.finished_before) return st;
    d->kl_prefix = r->kl_prefix;
    return kvf__trainer_save(trainer, true);
}

static kvf_status run(distilling *d, kvf_ctx *ctx, kvf_distill_result *result)
{
    kvf__trainer *trainer = NULL;
    double begin = kvf__clock();
    d->feed = (kvf__feed){.open = open_rows,
                          .lineage = add_lineage,
                          .start = start,
                          .state = state_before,
                          .user = d};
    KVF_TRY(kvf__trainer_open(ctx, &d->options.train, &(kvf__trainer_uses){.feed = &d->feed},
                              &trainer));
    const kvf__trainer_view t = kvf__trainer_look(trainer);
    const bool dry = t.run->options.dry_run;
    kvf_distill_result r = {.document_tokens = (int64_t)d->document.ids.n,
                            .prefix_length = t.run->id.P,
                            .held_out_rows = t.rows->task->valid.n,
                            .held_out_labels = t.rows->task->valid.n_labels,
                            .teacher_seconds = d->teacher_seconds,
                            .loss_base = NAN,
                            .loss_prefix = NAN,
                            .loss_document = NAN,
                            .kl_base = NAN,
                            .kl_prefix = NAN,
                            .kl_start = NAN};
    kvf_status st = KVF_OK;
    if (d->options.system_prompt && !t.run->output.is_resumed && !dry) st = measure(d, &t, NULL);
    if (!st) st = kvf__trainer_run(trainer, begin, &r.train);
    if (!st && !dry) st = measure_best(d, trainer, &r);
    if (!st || st == KVF_ESTOPPED) *result = r;
    kvf__trainer_free(trainer);
    return st;
}

static kvf_status distill(kvf_ctx *ctx, const kvf_distill_options *options,
                          kvf_distill_result *result)
{
    distilling d = {.options = *options};
    KVF_TRY(kvf__check_alone(ctx, "distillation"));
    KVF_TRY(decide_train(ctx, options->system_prompt != NULL, &d.options.train));
    KVF_TRY(check(ctx, &d.options));
    kvf__ctx_defer_stop(ctx, true);
    kvf_status st = run(&d, ctx, result);
    kvf__ctx_defer_stop(ctx, false);
    kvf__document_done(&d.document);
    kvf__teacher_done(&d.held_out);
    kvf__row_list_done(&d.queries);
    kvf__prefix_done(&d.beside);
    kvf__free(d.head);
    return st;
}

kvf_status kvf_distill(kvf_ctx *ctx, const kvf_distill_options *options, kvf_distill_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options, result));
    KVF__RETURN(ctx, distill(ctx, options, result));
}
