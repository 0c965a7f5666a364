/* Rows about a document without anyone who asks: pieces of it, and prompts that the base answers
 * with the document in context (self-study; Eyuboglu et al. 2025, "Cartridges").
 *
 * A prompt is a question of the list below, about the whole or about some words of the document, or
 * the words themselves to be continued. Prompt i draws them from (seed, i) and its answer from
 * (seed, i) too, so that the rows depend on the seed alone. */
#include "distill_int.h"

#include <string.h>

#define STUDY_STREAM 0x73747564 /* "stud" */

/* %s: words of the document. */
static const char *const PROMPTS[] = {
    "What does the text say about this: \"%s\"?",
    "Ask a question that the text answers about \"%s\", then answer it.",
    "Who or what is meant here: \"%s\"?",
    "List the facts that the text states.",
    "When, where and why, according to the text: \"%s\"?",
    "Summarize the text in a few sentences.",
    "Continue the text from here: %s",
    "Which numbers, names and places does the text mention near \"%s\"?",
};
enum { N_PROMPTS = sizeof PROMPTS / sizeof PROMPTS[0], LEAST_WORDS = 4, MORE_WORDS = 9 };

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

/* Bytes at which words begin. */
static kvf_status find_words(kvf_ctx *ctx, const kvf__buf *text, kvf__ids *starts)
{
    bool blank = true;
    for (size_t i = 0; i < text->n; i++) {
        bool now = strchr(" \t\r\n", text->data[i]) != NULL;
        if (blank && !now) KVF_TRY(kvf__ids_add(ctx, starts, (int32_t)i));
        blank = now;
    }
    return KVF_OK;
}

/* Some words that follow each other, on one line. */
static kvf_status draw_words(kvf_ctx *ctx, const kvf__buf *text, const kvf__ids *starts,
                             kvf__rng *rng, kvf__buf *out)
{
    size_t n = LEAST_WORDS + (size_t)kvf__rng_below(rng, MORE_WORDS);
    size_t first = (size_t)kvf__rng_below(rng, starts->n);
    for (size_t w = first; w < first + n && w < starts->n; w++) {
        const char *word = text->data + starts->data[w];
        if (out->n) KVF_TRY(kvf__buf_addc(ctx, out, ' '));
        KVF_TRY(kvf__buf_add(ctx, out, word, strcspn(word, " \t\r\n")));
    }
    return KVF_OK;
}

/* Where no chat template wraps prompts, the question and the place of its answer are marked. */
static kvf_status make_prompt(kvf_ctx *ctx, const char *words, int64_t at, bool wrapped,
                              kvf__buf *out)
{
    const char *pattern = PROMPTS[at % N_PROMPTS], *place = strstr(pattern, "%s");
    if (!wrapped) KVF_TRY(kvf__buf_printf(ctx, out, "Question: "));
    KVF_TRY(kvf__buf_add(ctx, out, pattern, place ? (size_t)(place - pattern) : strlen(pattern)));
    if (place) KVF_TRY(kvf__buf_printf(ctx, out, "%s%s", words, place + 2));
    return wrapped ? KVF_OK : kvf__buf_printf(ctx, out, "\nAnswer:");
}

/* What is asked: texts, and the same as a data set of prompts. */
typedef struct asked {
    int64_t n;
    char **prompts, **answers; /* [n] */
    kvf__ids ids;
    kvf__dataset set; /* views ids */
} asked;

static void asked_done(asked *a)
{
    for (int64_t i = 0; i < a->n; i++) {
        if (a->prompts) kvf__free(a->prompts[i]);
        if (a->answers) kvf__free(a->answers[i]);
    }
    kvf__free(a->prompts);
    kvf__free(a->answers);
    kvf__free(a->set.start);
    kvf__ids_done(&a->ids);
}

/* A prompt that takes more than half of what a row may hold is left out. */
static kvf_status ask_one(kvf_ctx *ctx, const kvf__document *document, const kvf__ids *starts,
                          const kvf__render *render, kvf__rng rng, int64_t i, int64_t longest,
                          asked *a)
{
    kvf__buf words = {0}, prompt = {0};
    int64_t from = a->set.start[a->n];
    kvf_status st = draw_words(ctx, &document->text, starts, &rng, &words);
    if (!st) st = make_prompt(ctx, words.data, i, render->wrap_prompts, &prompt);
    if (!st) st = kvf__render_prompt(ctx, render, prompt.data, &a->ids);
    if (!st && (int64_t)a->ids.n - from > longest / 2)
        a->ids.n = (size_t)from;
    else if (!st)
        st = kvf__strdup(ctx, prompt.data, &a->prompts[a->n++]);
    a->set.start[a->n] = (int64_t)a->ids.n;
    kvf__buf_done(&words);
    kvf__buf_done(&prompt);
    return st;
}

static kvf_status ask(kvf_ctx *ctx, const kvf__document *document, const kvf__render *render,
                      const kvf__study_options *options, int64_t longest, asked *a)
{
    kvf__ids starts = {0};
    size_t n = (size_t)options->n;
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *a->prompts, &a->prompts));
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *a->answers, &a->answers));
    KVF_TRY(kvf__alloc_array(ctx, n + 1, sizeof *a->set.start, &a->set.start));
    kvf_status st = find_words(ctx, &document->text, &starts);
    for (int64_t i = 0; !st && i < options->n; i++) {
        uint64_t stream = ((uint64_t)STUDY_STREAM << 32) + (uint64_t)i;
        st = ask_one(ctx, document, &starts, render, kvf__rng_make(options->seed, stream), i,
                     longest, a);
    }
    kvf__ids_done(&starts);
    a->set.n = a->n;
    a->set.ids = a->ids.data;
    return st;
}

/* ---- answers --------------------------------------------------------------------------------- */

static kvf_status add_answer(kvf_ctx *ctx, const kvf__render *render, const char *prompt,
                             const char *answer, kvf__row_list *rows)
{
    if (!*answer) return KVF_OK; /* it had nothing to say */
    kvf_json *row = kvf_json_object();
    bool good = row && kvf_json_set(row, "prompt", kvf_json_new_str(prompt)) &&
                kvf_json_set(row, "completion", kvf_json_new_str(answer));
    kvf__render own = *render; /* these fields have our names */
    own.map = NULL;
    kvf_status st = good ? kvf__render_row(ctx, &own, "self-study", row, false, &rows->ids,
                                           &rows->labels)
                         : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    kvf_json_free(row);
    return st ? st : kvf__row_list_end(ctx, rows);
}

kvf_status kvf__study_answers(kvf_ctx *ctx, kvf_base *base, const kvf__document *document,
                              const kvf__renderer *renderer, const kvf__study_options *options,
                              kvf__row_list *rows)
{
    static const char *const STOP[] = {"\nQuestion:"};
    const kvf__render *render = &renderer->render;
    asked a = {0};
    kvf_generate_options how = kvf_generate_defaults();
    how.max_tokens = options->max_tokens;
    how.temperature = options->temperature;
    how.seed = options->seed;
    how.stop = STOP;
    how.n_stop = 1;
    if (!options->n) return KVF_OK;
    kvf_status st = ask(ctx, document, render, options, rows->longest, &a);
    if (!st && a.n)
        st = kvf__generate_set(ctx, base, document->context, &a.set, &renderer->chat, &how,
                               a.answers, NULL);
    for (int64_t i = 0; !st && i < a.n; i++)
        st = add_answer(ctx, render, a.prompts[i], a.answers[i], rows);
    asked_done(&a);
    return st;
}
