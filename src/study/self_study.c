/* Rows about a document without anyone who asks: pieces of it, and prompts that the base answers
 * with the document in context (self-study; Eyuboglu et al. 2025, "Cartridges").
 *
 * A prompt begins as a seed of the list below, with some words of the document in it. Either the
 * base answers that, or what it writes there is the question that it is then asked: so rows are as
 * many and as different as are wanted, and about what the document says rather than how. Prompt i
 * draws seed, words and what the base writes from (seed, i), so the rows depend on the seed alone.
 */
#include "distill_int.h"

#include <string.h>

#define STUDY_STREAM  0x73747564 /* "stud" */
#define QUESTION_SEED 0x61736b73 /* "asks": apart from the answers' draws */

#define QUESTION_SHARE 0.4 /* of the temperature of answers: what is asked must make sense */

/* %s: words of the document. asks: what the base writes behind it is a question. */
static const struct {
    const char *text;
    bool asks;
} SEEDS[] = {
    {"%s\n\nQuestion:", true},
    {"What does the text say about this: \"%s\"?", false},
    {"%s\n\nA short question about a name, a number or a date in this text:", true},
    {"Continue the text from here: %s", false},
    {"%s\n\nA question about why or how:", true},
    {"Who or what is meant here: \"%s\"?", false},
    {"%s\n\nQuestion: What", true},
    {"Which numbers, names and places does the text mention near \"%s\"?", false},
    {"%s\n\nQuestion: Who", true},
    {"Summarize what the text says around \"%s\".", false},
    {"%s\n\nQuestion: When", true},
    {"%s\n\nQuestion: How many", true},
};
enum {
    N_SEEDS = sizeof SEEDS / sizeof SEEDS[0],
    LEAST_WORDS = 4,
    MORE_WORDS = 9,
    ASKED_WORDS = 24,     /* more of them before a question is made */
    QUESTION_TOKENS = 32, /* longest question that is made */
    SHORTEST = 8          /* bytes of one */
};

/* ---- pieces ---------------------------------------------------------------------------------- */

kvf_status kvf__study_chunks(kvf_ctx *ctx, const kvf__document *document, int64_t chunk,
                             const kvf__render *render, kvf__row_list *rows)
{
    bool bos = kvf__adds_bos(render->tokenizer);
    int64_t n = (int64_t)document->ids.n, most = rows->longest - bos;
    if (chunk > most) chunk = most;
    int64_t stride = chunk > 1 ? chunk / 2 : 1;
    for (int64_t at = bos; at < n; at += stride) {
        int64_t end = at + chunk < n ? at + chunk : n;
        if (bos) {
            KVF_TRY(kvf__ids_add(ctx, &rows->ids, kvf__token_bos(render->tokenizer)));
            KVF_TRY(kvf__ids_add(ctx, &rows->labels, KVF__NO_LABEL));
        }
        const int32_t *ids = document->ids.data + at;
        KVF_TRY(kvf__ids_append(ctx, &rows->ids, ids, (size_t)(end - at)));
        KVF_TRY(kvf__ids_append(ctx, &rows->labels, ids, (size_t)(end - at)));
        KVF_TRY(kvf__row_list_end(ctx, rows));
        if (end == n) break;
    }
    return KVF_OK;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* What all of it needs. */
typedef struct study {
    kvf_ctx *ctx;
    kvf_base *base;
    const kvf__document *document;
    const kvf__renderer *renderer;
    const kvf__study_options *options;
    int64_t longest; /* row */
    kvf__ids starts; /* bytes of the document at which words begin */
    char **texts;    /* [options->n] what is asked; NULL: nothing came of this seed */
} study;

/* Texts that the base goes on from. */
typedef struct asked {
    int64_t n;
    int64_t *of;    /* [n] places in study.texts */
    char **answers; /* [n] */
    kvf__ids ids;
    kvf__dataset set; /* of n prompts; views ids */
} asked;

static void asked_done(asked *a)
{
    if (a->answers) kvf_texts_free(a->answers, (size_t)a->n);
    kvf__free(a->answers);
    kvf__free(a->of);
    kvf__free(a->set.start);
    kvf__ids_done(&a->ids);
}

static kvf_status asked_init(kvf_ctx *ctx, int64_t most, asked *a)
{
    KVF_TRY(kvf__alloc_array(ctx, (size_t)most, sizeof *a->of, &a->of));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)most, sizeof *a->answers, &a->answers));
    return kvf__alloc_array(ctx, (size_t)most + 1, sizeof *a->set.start, &a->set.start);
}

/* One that takes more than half of what a row may hold is left out. */
static kvf_status asked_add(const study *s, const kvf__render *render, int64_t i, asked *a)
{
    int64_t from = a->set.start[a->n];
    KVF_TRY(kvf__render_prompt(s->ctx, render, s->texts[i], strlen(s->texts[i]), &a->ids));
    if ((int64_t)a->ids.n - from > s->longest / 2)
        a->ids.n = (size_t)from;
    else
        a->of[a->n++] = i;
    a->set.start[a->n] = (int64_t)a->ids.n;
    return KVF_OK;
}

/* What the base writes behind each, with the document in context. */
static kvf_status answer(const study *s, int64_t max_tokens, double temperature, uint64_t seed,
                         const char *stop, asked *a)
{
    kvf_generate_options how = kvf_generate_defaults();
    how.max_tokens = max_tokens;
    how.temperature = temperature;
    how.seed = seed;
    how.stop = &stop;
    how.n_stop = 1;
    a->set.n = a->n;
    a->set.ids = a->ids.data;
    if (!a->n) return KVF_OK;
    return kvf__generate_set(s->ctx, s->base, s->document->context, &a->set, &s->renderer->chat,
                             &how, a->answers, NULL);
}

static kvf_status find_words(study *s)
{
    const kvf__buf *text = &s->document->text;
    bool blank = true;
    for (size_t i = 0; i < text->n; i++) {
        bool now = strchr(" \t\r\n", text->data[i]) != NULL;
        if (blank && !now) KVF_TRY(kvf__ids_add(s->ctx, &s->starts, (int32_t)i));
        blank = now;
    }
    return KVF_OK;
}

/* Some words that follow each other, on one line. */
static kvf_status draw_words(const study *s, kvf__rng *rng, size_t least, kvf__buf *out)
{
    size_t n = least + (size_t)kvf__rng_below(rng, MORE_WORDS);
    size_t first = (size_t)kvf__rng_below(rng, s->starts.n);
    for (size_t w = first; w < first + n && w < s->starts.n; w++) {
        const char *word = s->document->text.data + s->starts.data[w];
        if (out->n) KVF_TRY(kvf__buf_addc(s->ctx, out, ' '));
        KVF_TRY(kvf__buf_add(s->ctx, out, word, strcspn(word, " \t\r\n")));
    }
    return KVF_OK;
}

/* The seed of prompt i, with words in it, becomes its text. */
static kvf_status fill_seed(const study *s, int64_t i)
{
    const char *text = SEEDS[i % N_SEEDS].text, *place = strstr(text, "%s");
    kvf__rng rng = kvf__rng_make(s->options->seed, ((uint64_t)STUDY_STREAM << 32) + (uint64_t)i);
    kvf__buf words = {0};
    size_t least = SEEDS[i % N_SEEDS].asks ? ASKED_WORDS : LEAST_WORDS;
    kvf_status st = draw_words(s, &rng, least, &words);
    if (!st)
        st = kvf__asprintf(s->ctx, &s->texts[i], "%.*s%s%s", (int)(place - text), text, words.data,
                           place + 2);
    kvf__buf_done(&words);
    return st;
}

/* ---- questions that the base makes ----------------------------------------------------------- */

/* In place of its seed, of which the question begins with what follows the colon; written: its
 * rest, without the mark. */
static kvf_status take_question(const study *s, int64_t i, const char *written)
{
    const char *begin = strrchr(SEEDS[i % N_SEEDS].text, ':') + 1;
    begin += *begin == ' ';
    if (!*begin) written += strspn(written, " \t\r\n");
    size_t n = strcspn(written, "\r\n");
    kvf__free(s->texts[i]);
    s->texts[i] = NULL;
    if (strlen(begin) + n < SHORTEST) return KVF_OK;
    return kvf__asprintf(s->ctx, &s->texts[i], "%s%.*s?", begin, (int)n, written);
}

/* The seeds are texts to go on from, whatever template wraps prompts. */
static kvf_status make_questions(const study *s)
{
    kvf__render plain = s->renderer->render;
    asked a = {0};
    plain.wrap_prompts = false;
    plain.pattern = NULL;
    kvf_status st = asked_init(s->ctx, s->options->n, &a);
    for (int64_t i = 0; !st && i < s->options->n; i++)
        if (SEEDS[i % N_SEEDS].asks) st = asked_add(s, &plain, i, &a);
    if (!st)
        st = answer(s, QUESTION_TOKENS, QUESTION_SHARE * s->options->temperature,
                    s->options->seed ^ QUESTION_SEED, "?", &a);
    for (int64_t i = 0; !st && i < a.n; i++)
        st = take_question(s, a.of[i], a.answers[i]);
    asked_done(&a);
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Where no chat template wraps prompts, the question and the place of its answer are marked. */
static kvf_status mark(const study *s, int64_t i)
{
    char *marked = NULL;
    if (s->renderer->render.wrap_prompts || !s->texts[i]) return KVF_OK;
    KVF_TRY(kvf__asprintf(s->ctx, &marked, "Question: %s\nAnswer:", s->texts[i]));
    kvf__free(s->texts[i]);
    s->texts[i] = marked;
    return KVF_OK;
}

static kvf_status add_row(const study *s, const char *prompt, const char *answer,
                          kvf__row_list *rows)
{
    const size_t bytes = kvf_text_bytes(answer);
    if (!bytes) return KVF_OK; /* it had nothing to say */
    kvf_json *row = kvf_json_object();
    bool good = row && kvf_json_set(row, "prompt", kvf_json_new_str(prompt)) &&
                kvf_json_set(row, "completion", kvf_json_new_strn(answer, bytes));
    kvf__render own = s->renderer->render; /* these fields have our names */
    own.map = NULL;
    kvf_status st = good ? kvf__render_row(s->ctx, &own, "self-study", row, false, &rows->ids,
                                           &rows->labels)
                         : kvf__fail(s->ctx, KVF_ENOMEM, "out of memory");
    kvf_json_free(row);
    return st ? st : kvf__row_list_end(s->ctx, rows);
}

static kvf_status make_rows(const study *s, kvf__row_list *rows)
{
    asked a = {0};
    kvf_status st = asked_init(s->ctx, s->options->n, &a);
    for (int64_t i = 0; !st && i < s->options->n; i++) {
        st = mark(s, i);
        if (!st && s->texts[i]) st = asked_add(s, &s->renderer->render, i, &a);
    }
    if (!st)
        st = answer(s, s->options->max_tokens, s->options->temperature, s->options->seed,
                    "\nQuestion:", &a);
    for (int64_t i = 0; !st && i < a.n; i++)
        st = add_row(s, s->texts[a.of[i]], a.answers[i], rows);
    asked_done(&a);
    return st;
}

kvf_status kvf__study_answers(kvf_ctx *ctx, kvf_base *base, const kvf__document *document,
                              const kvf__renderer *renderer, const kvf__study_options *options,
                              kvf__row_list *rows)
{
    study s = {.ctx = ctx,
               .base = base,
               .document = document,
               .renderer = renderer,
               .options = options,
               .longest = rows->longest};
    if (!options->n) return KVF_OK;
    kvf_status st = kvf__alloc_array(ctx, (size_t)options->n, sizeof *s.texts, &s.texts);
    if (!st) st = find_words(&s);
    for (int64_t i = 0; !st && i < options->n; i++)
        st = fill_seed(&s, i);
    if (!st) st = make_questions(&s);
    if (!st) st = make_rows(&s, rows);
    for (int64_t i = 0; s.texts && i < options->n; i++)
        kvf__free(s.texts[i]);
    kvf__free(s.texts);
    kvf__ids_done(&s.starts);
    return st;
}
