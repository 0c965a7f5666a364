/* Generates rows about a document: pieces of it, and prompts that the base answers with the
 * document in context (self-study; Eyuboglu et al. 2025, "Cartridges"). A prompt begins with a seed
 * text of the list below, filled with words of the document. The base answers it directly, or first
 * writes a question and then answers that. This gives any number of varied rows about the content
 * of the document rather than its style. Prompt i draws from (seed, i), so the rows depend only on
 * the seed. */
#include "distill_int.h"
#include "json_pack.h"

#include <string.h>

#define STUDY_STREAM  0x73747564 /* "stud" */
#define QUESTION_SEED 0x61736b73 /* "asks": separates this random stream from that of the answers  \
                                  */

#define QUESTION_SHARE 0.4 /* share of the answers' temperature: questions must make sense */

/* %s: words of the document. asks: the base completes the text to a question. */
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
    ASKED_WORDS = 24,     /* words in a seed that asks for a question */
    QUESTION_TOKENS = 32, /* longest generated question */
    SHORTEST = 8          /* shortest one in bytes */
};

/* ---- pieces ---------------------------------------------------------------------------------- */

kvf_status kvf__study_chunks(kvf_ctx *ctx, const kvf__document *document, int64_t chunk,
                             int64_t parts, const kvf__render *render, kvf__row_list *rows)
{
    bool bos = kvf__adds_bos(render->tokenizer);
    int64_t n = (int64_t)document->ids.n, most = rows->longest - bos;
    if (chunk > most) chunk = most;
    int64_t stride = chunk > parts ? chunk / parts : 1;
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

/* Shared state of self-study. */
typedef struct study {
    kvf_ctx *ctx;
    kvf_base *base;
    const kvf__document *document;
    const kvf__renderer *renderer;
    const kvf__study_options *options;
    int64_t longest; /* longest row */
    kvf__ids starts; /* byte offsets of the words in the document */
    char **texts;    /* [options->n] prompts; NULL: none from this seed */
} study;

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

/* Draws consecutive words of the document, on one line. */
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

/* Fills the seed text of prompt i with words. */
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

/* ---- what the base writes -------------------------------------------------------------------- */

/* A round in which the base completes texts. */
typedef struct round {
    const kvf__render *render;
    bool seeds; /* only seeds that ask for a question; false: all texts */
    kvf_generate_options how;
    /* Called with the completion of text i. */
    kvf_status (*take)(const study *s, int64_t i, const char *written, kvf__row_list *rows);
    kvf__row_list *rows;
} round;

/* Renders the texts of the round as prompts, from texts of[0], of[1] and so on. A text longer than
 * half of a row is skipped. */
static kvf_status render_texts(const study *s, const round *r, int64_t *of, kvf__ids *ids,
                               kvf__dataset *set)
{
    for (int64_t i = 0; i < s->options->n; i++) {
        const int64_t from = set->start[set->n];
        if (!s->texts[i] || (r->seeds && !SEEDS[i % N_SEEDS].asks)) continue;
        KVF_TRY(kvf__render_prompt(s->ctx, r->render, s->texts[i], strlen(s->texts[i]), ids));
        if ((int64_t)ids->n - from > s->longest / 2)
            ids->n = (size_t)from;
        else
            of[set->n++] = i;
        set->start[set->n] = (int64_t)ids->n;
    }
    set->ids = ids->data;
    return KVF_OK;
}

/* Completes the texts of a round with the document in context. */
static kvf_status run_round(const study *s, const round *r)
{
    const size_t most = (size_t)s->options->n;
    kvf__ids ids = {0};
    kvf__dataset set = {0};
    int64_t *of = NULL;
    char **written = NULL;
    kvf_status st = kvf__alloc_array(s->ctx, most, sizeof *of, &of);
    if (!st) st = kvf__alloc_array(s->ctx, most, sizeof *written, &written);
    if (!st) st = kvf__alloc_array(s->ctx, most + 1, sizeof *set.start, &set.start);
    if (!st) st = render_texts(s, r, of, &ids, &set);
    if (!st && set.n)
        st = kvf__generate_set(s->ctx, s->base, s->document->context, &set, &s->renderer->chat,
                               &r->how, written, NULL);
    for (int64_t i = 0; !st && i < set.n; i++)
        st = r->take(s, of[i], written[i], r->rows);
    if (written) kvf_texts_free(written, (size_t)set.n);
    kvf__free(written);
    kvf__free(of);
    kvf__free(set.start);
    kvf__ids_done(&ids);
    return st;
}

static kvf_generate_options how_to_write(int64_t max_tokens, double temperature, uint64_t seed,
                                         const char *const *stop)
{
    kvf_generate_options how = kvf_generate_defaults();
    how.max_tokens = max_tokens;
    how.temperature = temperature;
    how.seed = seed;
    how.stop = stop;
    how.n_stop = 1;
    return how;
}

/* ---- questions that the base makes ----------------------------------------------------------- */

/* Replaces a seed by the question, which begins after the seed's colon. written: the rest of the
 * question, without the question mark. */
static kvf_status add_question(const study *s, int64_t i, const char *written, kvf__row_list *rows)
{
    (void)rows;
    const char *begin = strrchr(SEEDS[i % N_SEEDS].text, ':') + 1;
    begin += *begin == ' ';
    if (!*begin) written += strspn(written, " \t\r\n");
    size_t n = strcspn(written, "\r\n");
    kvf__free(s->texts[i]);
    s->texts[i] = NULL;
    if (strlen(begin) + n < SHORTEST) return KVF_OK;
    return kvf__asprintf(s->ctx, &s->texts[i], "%s%.*s?", begin, (int)n, written);
}

/* Generates questions. The seeds are completed as plain text, without a template for prompts. */
static kvf_status make_questions(const study *s)
{
    static const char *const stop = "?";
    const kvf_generate_options how = how_to_write(QUESTION_TOKENS,
                                                  QUESTION_SHARE * s->options->temperature,
                                                  s->options->seed ^ QUESTION_SEED, &stop);
    const kvf__render plain = kvf__document_render(&s->renderer->render);
    return run_round(s,
                     &(round){.render = &plain, .seeds = true, .how = how, .take = add_question});
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Marks the question and the start of the answer if there is no chat template. */
static kvf_status mark(const study *s, int64_t i)
{
    char *marked = NULL;
    if (s->renderer->render.wrap_prompts || !s->texts[i]) return KVF_OK;
    KVF_TRY(kvf__asprintf(s->ctx, &marked, "Question: %s\nAnswer:", s->texts[i]));
    kvf__free(s->texts[i]);
    s->texts[i] = marked;
    return KVF_OK;
}

/* Adds prompt i with its answer. */
static kvf_status add_row(const study *s, int64_t i, const char *answer, kvf__row_list *rows)
{
    const size_t bytes = kvf_text_bytes(answer);
    if (!bytes) return KVF_OK; /* the base ended the text at once */
    kvf_json *row = kvf__json_pack("{s:o, s:o}", "prompt", kvf_json_new_str(s->texts[i]),
                                   "completion", kvf_json_new_strn(answer, bytes));
    kvf__render own = s->renderer->render; /* the generated fields have kvfold's names */
    own.map = NULL;
    kvf_status st = row ? kvf__render_row(s->ctx, &own, "self-study", row, false, &rows->ids,
                                          &rows->labels)
                        : kvf__fail(s->ctx, KVF_ENOMEM, "out of memory");
    kvf_json_free(row);
    return st ? st : kvf__row_list_end(s->ctx, rows);
}

static kvf_status make_rows(const study *s, kvf__row_list *rows)
{
    static const char *const stop = "\nQuestion:";
    const kvf__study_options *o = s->options;
    for (int64_t i = 0; i < o->n; i++)
        KVF_TRY(mark(s, i));
    return run_round(s, &(round){.render = &s->renderer->render,
                                 .how = how_to_write(o->max_tokens, o->temperature, o->seed, &stop),
                                 .take = add_row,
                                 .rows = rows});
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
