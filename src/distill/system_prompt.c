/* A system prompt as a document: its turn in the base's template precedes the first user turn, and
 * the prefix replaces it. So rows use the template "no-system" (src/text/chat.c), without a system
 * turn and without the template's default one.
 *
 * User turns come from a file, or the base with the system prompt writes them after the tokens that
 * open a user turn (Xu et al. 2024, "Magpie"). Answers come from the base with the system prompt,
 * or from the student, generated anew for every step (on-policy distillation; Agarwal et al. 2024,
 * "GKD"). */
#include "distill_int.h"

#include <string.h>

#define TURN_SEED 0x7475726e /* "turn": separates this random stream from that of the answers */

enum {
    TURN_TOKENS = 48, /* longest generated user turn */
    SHORTEST = 8      /* shortest one in bytes */
};

/* ---- the system turn ------------------------------------------------------------------------- */

/* Returns the start of a chat in the base's template up to the part that a chat without a system
 * turn has too. */
static kvf_status cut_turn(kvf_ctx *ctx, const kvf__render *render, const kvf__message turns[2],
                           kvf__ids *whole, kvf__ids *rest)
{
    kvf__chat own = *render->chat; /* a view */
    own.no_system = false;
    KVF_TRY(kvf__chat_encode(ctx, render->tokenizer, &own, turns, 2, true, whole, NULL));
    KVF_TRY(kvf__chat_encode(ctx, render->tokenizer, render->chat, turns + 1, 1, true, rest, NULL));
    const size_t n = whole->n > rest->n ? whole->n - rest->n : 0;
    if (!n || memcmp(whole->data + n, rest->data, rest->n * sizeof *rest->data))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "the base's chat template does not begin with the system prompt");
    whole->n = n;
    return KVF_OK;
}

kvf_status kvf__system_turn(kvf_ctx *ctx, const kvf__render *render, kvf__buf *text, kvf__ids *ids)
{
    kvf__ids rest = {0};
    while (text->n && (text->data[text->n - 1] == '\n' || text->data[text->n - 1] == '\r'))
        text->n--;
    const kvf__message turns[] = {{"system", text->data, text->n, false}, {"user", "a", 1, false}};
    kvf_status st = cut_turn(ctx, render, turns, ids, &rest);
    kvf__ids_done(&rest);
    KVF_TRY(st);
    const size_t bos = kvf__adds_bos(render->tokenizer);
    text->n = 0;
    return kvf__decode(ctx, render->tokenizer, ids->data + bos, ids->n - bos, false, text);
}

/* ---- user turns ------------------------------------------------------------------------------ */

/* Returns the ids that open a user turn: the common start of two chats. */
static kvf_status open_turn(kvf_ctx *ctx, const kvf__render *render, kvf__ids *out)
{
    static const char *const texts[] = {"a", "0"};
    kvf__ids ids[2] = {{0}};
    size_t n = 0;
    kvf_status st = KVF_OK;
    for (int i = 0; !st && i < 2; i++)
        st = kvf__render_prompt(ctx, render, texts[i], 1, &ids[i]);
    while (!st && n < ids[0].n && n < ids[1].n && ids[0].data[n] == ids[1].data[n])
        n++;
    if (!st) st = kvf__ids_append(ctx, out, ids[0].data, n);
    kvf__ids_done(&ids[0]);
    kvf__ids_done(&ids[1]);
    return st;
}

/* Makes n rows with the same `ids`. */
static kvf_status repeat(kvf_ctx *ctx, const kvf__ids *ids, int64_t n, kvf__dataset *out)
{
    kvf__dataset set = {.task = KVF__TASK_LM};
    KVF_TRY(kvf__dataset_alloc_rows(ctx, &set, n, n * (int64_t)ids->n));
    for (int64_t r = 0; r < n; r++) {
        memcpy(set.ids + set.start[r], ids->data, ids->n * sizeof *ids->data);
        set.start[r + 1] = set.start[r] + (int64_t)ids->n;
    }
    set.n = n;
    *out = set;
    return KVF_OK;
}

/* Adds a generated text as a prompt, unless it is too short. */
static kvf_status add_turn(const kvf__chats *chats, const char *written, kvf__ids *ids,
                           kvf__ids *ends)
{
    const size_t from = ids->n;
    size_t n = kvf_text_bytes(written);
    while (n && strchr(" \t\r\n", *written))
        written++, n--;
    if (n < SHORTEST) return KVF_OK;
    KVF_TRY(kvf__render_prompt(chats->ctx, &chats->renderer->render, written, n, ids));
    if ((int64_t)(ids->n - from) > chats->longest_prompt)
        ids->n = from;
    else
        KVF_TRY(kvf__ids_add(chats->ctx, ends, (int32_t)ids->n));
    return KVF_OK;
}

static kvf_status to_set(kvf_ctx *ctx, const kvf__ids *ids, const kvf__ids *ends, kvf__dataset *out)
{
    kvf__dataset set = {.task = KVF__TASK_LM};
    KVF_TRY(kvf__dataset_alloc_rows(ctx, &set, (int64_t)ends->n, (int64_t)ids->n));
    if (ids->n) memcpy(set.ids, ids->data, ids->n * sizeof *ids->data);
    for (size_t r = 0; r < ends->n; r++)
        set.start[r + 1] = ends->data[r];
    set.n = (int64_t)ends->n;
    *out = set;
    return KVF_OK;
}

static kvf_status generate(const kvf__chats *chats, const kvf_prefix *speaker,
                           const kvf__dataset *prompts, int64_t max_tokens, double temperature,
                           uint64_t seed, char ***texts)
{
    kvf_generate_options how = kvf_generate_defaults();
    how.max_tokens = max_tokens;
    how.temperature = temperature;
    how.seed = seed;
    KVF_TRY(kvf__alloc_array(chats->ctx, (size_t)prompts->n, sizeof **texts, texts));
    kvf_status st = kvf__generate_set(chats->ctx, chats->base, speaker, prompts,
                                      &chats->renderer->chat, &how, *texts, NULL);
    if (!st) return KVF_OK;
    kvf__free(*texts);
    *texts = NULL;
    return st;
}

kvf_status kvf__user_turns_load(const kvf__chats *chats, const kvf_train_options *options,
                                const char *path, kvf__dataset *out)
{
    const kvf__dataset_options load = {
        .render = chats->renderer->render,
        .vocab = (int32_t)kvf__model_desc(chats->base->model)->V,
        .format = options->format,
        .no_header = options->no_header,
        .columns = options->columns,
        .delimiter = options->delimiter,
        .task = KVF__TASK_LM,
        .overlong = options->overlong,
        .max_length = chats->longest_prompt,
        .prompt_only = true,
    };
    return kvf__dataset_load(chats->ctx, path, &load, out);
}

kvf_status kvf__user_turns_make(const kvf__chats *chats, const kvf_prefix *speaker, int64_t n,
                                kvf__dataset *out)
{
    kvf__ids open = {0}, ids = {0}, ends = {0};
    kvf__dataset openings = {0};
    char **written = NULL;
    kvf_status st = open_turn(chats->ctx, &chats->renderer->render, &open);
    if (!st) st = repeat(chats->ctx, &open, n, &openings);
    if (!st)
        st = generate(chats, speaker, &openings, TURN_TOKENS, 1, chats->study->seed ^ TURN_SEED,
                      &written);
    for (int64_t i = 0; !st && i < n; i++)
        st = add_turn(chats, written[i], &ids, &ends);
    if (!st) st = to_set(chats->ctx, &ids, &ends, out);
    if (written) kvf_texts_free(written, (size_t)n);
    kvf__free(written);
    kvf__dataset_done(&openings);
    kvf__ids_done(&open);
    kvf__ids_done(&ids);
    kvf__ids_done(&ends);
    return st;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Adds row r of the prompts with an answer and its end token, at most max_tokens + 1 tokens. */
static kvf_status add_row(const kvf__chats *chats, const kvf__dataset *prompts, int64_t r,
                          const char *answer, kvf__row_list *rows)
{
    const kvf__render *render = &chats->renderer->render;
    const kvf__message turns[] = {{"user", "a", 1, false},
                                  {"assistant", answer, kvf_text_bytes(answer), false}};
    const size_t n = (size_t)kvf__example_length(prompts, r);
    int64_t left = chats->study->max_tokens + 1;
    kvf__ids ids = {0}, loss = {0};
    kvf_status st = kvf__chat_encode(chats->ctx, render->tokenizer, render->chat, turns, 2, false,
                                     &ids, &loss);
    if (!st) st = kvf__ids_append(chats->ctx, &rows->ids, prompts->ids + prompts->start[r], n);
    for (size_t i = 0; !st && i < n; i++)
        st = kvf__ids_add(chats->ctx, &rows->labels, KVF__NO_LABEL);
    for (size_t i = 0; !st && i < ids.n && left; i++) {
        if (!loss.data[i]) continue;
        left--;
        st = kvf__ids_add(chats->ctx, &rows->ids, ids.data[i]);
        if (!st) st = kvf__ids_add(chats->ctx, &rows->labels, ids.data[i]);
    }
    if (!st) st = kvf__row_list_end(chats->ctx, rows);
    kvf__ids_done(&ids);
    kvf__ids_done(&loss);
    return st;
}

kvf_status kvf__answer_turns(const kvf__chats *chats, const kvf_prefix *speaker,
                             const kvf__dataset *prompts, uint64_t seed, kvf__row_list *rows)
{
    char **answers = NULL;
    if (!prompts->n) return KVF_OK;
    kvf_status st = generate(chats, speaker, prompts, chats->study->max_tokens,
                             chats->study->temperature, seed, &answers);
    for (int64_t r = 0; !st && r < prompts->n; r++)
        st = add_row(chats, prompts, r, answers[r], rows);
    if (answers) kvf_texts_free(answers, (size_t)prompts->n);
    kvf__free(answers);
    return st;
}

/* ---- on-policy ------------------------------------------------------------------------------- */

/* Pads each row with its last id to the longest answer, so that answers can change in place. */
kvf_status kvf__pad_answers(const kvf__chats *chats, const kvf__row_list *rows, kvf__row_list *out)
{
    int64_t from = 0;
    out->longest = rows->longest;
    for (size_t r = 0; r < rows->ends.n; r++) {
        const int64_t end = rows->ends.data[r];
        const int32_t last = rows->ids.data[end - 1];
        int64_t left = chats->study->max_tokens + 1;
        for (int64_t i = from; i < end; i++)
            left -= rows->labels.data[i] != KVF__NO_LABEL;
        const size_t n = (size_t)(end - from);
        KVF_TRY(kvf__ids_append(chats->ctx, &out->ids, rows->ids.data + from, n));
        KVF_TRY(kvf__ids_append(chats->ctx, &out->labels, rows->labels.data + from, n));
        for (; left > 0; left--) {
            KVF_TRY(kvf__ids_add(chats->ctx, &out->ids, last));
            KVF_TRY(kvf__ids_add(chats->ctx, &out->labels, last));
        }
        KVF_TRY(kvf__row_list_end(chats->ctx, out));
        from = end;
    }
    return KVF_OK;
}

kvf_status kvf__prompts_of(kvf_ctx *ctx, const kvf__dataset *set, const int64_t *rows, int64_t n,
                           kvf__dataset *out)
{
    kvf__ids ids = {0}, ends = {0};
    kvf_status st = KVF_OK;
    for (int64_t i = 0; !st && i < n; i++) {
        int64_t at = set->start[rows[i]];
        for (; !st && set->labels[at] == KVF__NO_LABEL; at++)
            st = kvf__ids_add(ctx, &ids, set->ids[at]);
        if (!st) st = kvf__ids_add(ctx, &ends, (int32_t)ids.n);
    }
    if (!st) st = to_set(ctx, &ids, &ends, out);
    kvf__ids_done(&ids);
    kvf__ids_done(&ends);
    return st;
}

void kvf__replace_rows(kvf__dataset *set, const int64_t *rows, int64_t n, const kvf__dataset *by)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t length = kvf__example_length(by, i);
        int32_t *ids = set->ids + set->start[rows[i]], *labels = set->labels + set->start[rows[i]];
        memcpy(ids, by->ids + by->start[i], (size_t)length * sizeof *ids);
        memcpy(labels, by->labels + by->start[i], (size_t)length * sizeof *labels);
        for (int64_t k = length; k < kvf__example_length(set, rows[i]); k++) {
            ids[k] = ids[length - 1];
            labels[k] = KVF__NO_LABEL;
        }
    }
}
