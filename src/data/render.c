/* Converts one JSON row to ids and labels. train, eval, generate and serve all use this code, so
 * evaluation measures what was trained. Prompt and completion are tokenised separately, as at
 * inference, where the completion does not exist yet. */
#include "file_rows.h"

#include <stdlib.h>
#include <string.h>

/* A row being converted to ids and, unless NULL, labels. */
typedef struct row_writer {
    kvf_ctx *ctx;
    const kvf__render *render;
    const char *where;
    const kvf_json *row;
    bool prompt_only;
    kvf__ids *ids, *labels;
} row_writer;

/* A text of the row, which may contain U+0000. */
typedef struct row_text {
    const char *text;
    size_t n;
} row_text;

static const kvf_json *field(const row_writer *w, const char *name)
{
    return kvf__field(w->render->map, w->row, name);
}

static kvf_status text_field(const row_writer *w, const char *name, row_text *out)
{
    const kvf_json *value = field(w, name);
    out->text = kvf_json_str(value, &out->n);
    if (out->text) return KVF_OK;
    char has[KVF__ROW_HAS_MAX];
    kvf__row_has(w->render->map, w->row, NULL, has);
    return kvf__fail(w->ctx, KVF_EDATA, "%s: \"%s\" is %s; %s", w->where, name,
                     value ? "not a string" : "missing", has);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Adds labels for the ids without one: the ids themselves for loss, else -100. */
static kvf_status label_new(const row_writer *w, bool loss)
{
    for (size_t i = w->labels ? w->labels->n : 0; w->labels && i < w->ids->n; i++)
        KVF_TRY(kvf__ids_add(w->ctx, w->labels, loss ? w->ids->data[i] : KVF__NO_LABEL));
    return KVF_OK;
}

static kvf_status add_text(const row_writer *w, row_text text, bool loss)
{
    KVF_TRY(kvf__encode(w->ctx, w->render->tokenizer, text.text, text.n, false, w->ids));
    return label_new(w, loss);
}

/* Returns true if a template has already printed the rows. They contain their BOS, if any, and the
 * ends of turns. */
static bool is_rendered(const row_writer *w)
{
    return w->render->chat->kind == KVF__CHAT_RENDERED;
}

static kvf_status add_id(const row_writer *w, int32_t id, bool loss)
{
    KVF_TRY(kvf__ids_add(w->ctx, w->ids, id));
    return label_new(w, loss);
}

static kvf_status add_bos(const row_writer *w, bool loss)
{
    if (!kvf__adds_bos(w->render->tokenizer) || is_rendered(w)) return KVF_OK;
    return add_id(w, kvf__token_bos(w->render->tokenizer), loss);
}

/* Appends EOS to the tokens from `from` on, unless they end in one. */
static kvf_status add_eos(const row_writer *w, size_t from, bool loss)
{
    const int32_t eos = kvf__token_eos(w->render->tokenizer);
    if (eos < 0 || is_rendered(w)) return KVF_OK;
    if (w->ids->n == from || w->ids->data[w->ids->n - 1] != eos) return add_id(w, eos, loss);
    if (w->labels && loss) w->labels->data[w->labels->n - 1] = eos;
    return KVF_OK;
}

/* Ends a row of text, or a decoder's target, with EOS. */
static kvf_status end_row(const row_writer *w, size_t from)
{
    return w->prompt_only || w->render->no_eos ? KVF_OK : add_eos(w, from, true);
}

/* Appends the virtual tokens in front of the row, without loss. */
static kvf_status add_front(const row_writer *w)
{
    if (!w->render->pattern) return KVF_OK;
    KVF_TRY(kvf__add_virtual(w->ctx, 0, w->render->pattern->front, w->ids));
    return label_new(w, false);
}

/* Appends messages. kvf__chat_encode() returns for each id whether it carries loss; labels need the
 * id or -100. */
static kvf_status add_messages(const row_writer *w, const kvf__message *messages, size_t n,
                               bool open)
{
    size_t from = w->ids->n;
    kvf__ids loss = {0};
    kvf_status st = kvf__chat_encode(w->ctx, w->render->tokenizer, w->render->chat, messages, n,
                                     open, w->ids, &loss);
    for (size_t i = from; !st && w->labels && i < w->ids->n; i++)
        st = kvf__ids_add(w->ctx, w->labels, loss.data[i - from] ? w->ids->data[i] : KVF__NO_LABEL);
    kvf__ids_done(&loss);
    if (!st || !w->where) return st;
    char what[1024];
    snprintf(what, sizeof what, "%s", kvf_ctx_error(w->ctx));
    return kvf__fail(w->ctx, st, "%s: %s", w->where, what);
}

/* Returns false for values without content: null, "", [] and {}. */
static bool is_given(const kvf_json *value)
{
    size_t n = 0;
    if (!kvf_json_str(value, &n)) n = kvf_json_size(value);
    return kvf_json_typeof(value) > KVF_JSON_NULL &&
           (n || kvf_json_typeof(value) < KVF_JSON_STRING);
}

/* Reads the turns beside the prompt or the messages: the system turn, then the pairs of user and
 * assistant turns in "history". more: room for so many further turns. */
static kvf_status turns_before(const row_writer *w, size_t more, kvf__message **out, size_t *n)
{
    const kvf_json *system = w->row ? field(w, "system") : NULL,
                   *history = w->row ? field(w, "history") : NULL;
    kvf__message *turns = NULL;
    row_text text = {0};
    *n = 0;
    if (is_given(system)) KVF_TRY(text_field(w, "system", &text));
    const bool list = kvf_json_typeof(history) == KVF_JSON_ARRAY;
    const size_t pairs = list ? kvf_json_size(history) : is_given(history);
    KVF_TRY(kvf__alloc_array(w->ctx, 1 + 2 * pairs + more, sizeof *turns, &turns));
    if (text.n) turns[(*n)++] = (kvf__message){"system", text.text, text.n, false};
    for (size_t i = 0; i < 2 * pairs; i++) {
        const kvf_json *pair = kvf_json_at(history, i / 2);
        kvf__message *turn = &turns[(*n)++];
        turn->role = i % 2 ? "assistant" : "user";
        turn->content = kvf_json_str(kvf_json_at(pair, i % 2), &turn->bytes);
        if (turn->content && kvf_json_size(pair) == 2) continue;
        kvf__free(turns);
        return kvf__fail(w->ctx, KVF_EDATA,
                         "%s: \"history\": want a list of [\"question\", \"answer\"]", w->where);
    }
    *out = turns;
    return KVF_OK;
}

/* Appends a user turn after those of "system" and "history", and its answer unless prompt_only. */
static kvf_status add_turns(const row_writer *w, row_text prompt, row_text completion)
{
    kvf__message *turns = NULL;
    size_t n = 0;
    KVF_TRY(turns_before(w, 2, &turns, &n));
    turns[n++] = (kvf__message){"user", prompt.text, prompt.n, false};
    if (!w->prompt_only)
        turns[n++] = (kvf__message){"assistant", completion.text, completion.n, false};
    kvf_status st = add_messages(w, turns, n, w->prompt_only);
    kvf__free(turns);
    return st;
}

/* Refuses "system" and "history" in plain rows, which have no turns. */
static kvf_status refuse_turns(const row_writer *w)
{
    for (int i = 0; w->row && i < 2; i++) {
        const char *name = i ? "history" : "system";
        if (is_given(field(w, name)))
            return kvf__fail(w->ctx, KVF_EDATA,
                             "%s: \"%s\" is a chat turn, but this row is plain text: set "
                             "--chat-template, or move the turn into the prompt",
                             w->where, name);
    }
    return KVF_OK;
}

static kvf_status add_prompt(const row_writer *w, row_text prompt)
{
    KVF_TRY(add_bos(w, false));
    const size_t from = w->ids->n;
    KVF_TRY(add_text(w, prompt, false));
    return w->render->encoder ? add_eos(w, from, false) : KVF_OK; /* encoder text has EOS */
}

/* Begins the decoder's text: its start token, then BOS if the tokenizer adds one (BART). */
static kvf_status begin_target(const row_writer *w)
{
    KVF_TRY(add_id(w, w->render->start, false));
    return add_bos(w, true);
}

static kvf_status add_pair(const row_writer *w, row_text prompt, row_text completion)
{
    KVF_TRY(refuse_turns(w));
    KVF_TRY(add_prompt(w, prompt));
    if (w->prompt_only) return KVF_OK;
    if (w->render->encoder) KVF_TRY(begin_target(w));
    const size_t from = w->ids->n;
    KVF_TRY(add_text(w, completion, true));
    return end_row(w, from);
}

/* ---- templates ------------------------------------------------------------------------------- */

kvf_status kvf__add_virtual(kvf_ctx *ctx, int64_t first, int64_t n, kvf__ids *ids)
{
    for (int64_t p = first; p < first + n; p++)
        KVF_TRY(kvf__ids_add(ctx, ids, (int32_t)(-1 - p)));
    return KVF_OK;
}

/* Encodes a text, with or without a blank before it. */
static kvf_status encode_piece(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, bool blank,
                               const char *text, size_t bytes, kvf__ids *ids)
{
    kvf__buf spaced = {0};
    if (!blank) return kvf__encode(ctx, tokenizer, text, bytes, false, ids);
    kvf_status st = kvf__buf_addc(ctx, &spaced, ' ');
    if (!st) st = kvf__buf_add(ctx, &spaced, text, bytes);
    if (!st) st = kvf__encode(ctx, tokenizer, spaced.data, spaced.n, false, ids);
    kvf__buf_done(&spaced);
    return st;
}

kvf_status kvf__add_piece(kvf_ctx *ctx, const kvf__tokenizer *tokenizer,
                          const kvf__template_piece *piece, const char *field, size_t bytes,
                          kvf__ids *ids)
{
    switch (piece->kind) {
    case KVF__PIECE_VIRTUAL:
        return kvf__add_virtual(ctx, piece->first, piece->n, ids);
    case KVF__PIECE_MASK:
        return kvf__ids_add(ctx, ids, kvf__token_mask(tokenizer));
    case KVF__PIECE_LITERAL:
        return encode_piece(ctx, tokenizer, piece->blank, piece->text, strlen(piece->text), ids);
    case KVF__PIECE_FIELD:
        break;
    }
    return encode_piece(ctx, tokenizer, piece->blank, field, bytes, ids);
}

/* A prompt without a row: a text, or ids. */
typedef struct bare_prompt {
    row_text text;      /* text NULL: given as ids */
    const int32_t *ids; /* [n] */
    size_t n;
} bare_prompt;

/* Appends a field of the row, or the bare prompt in its place. */
static kvf_status add_field(const row_writer *w, const kvf__template_piece *piece,
                            const bare_prompt *prompt)
{
    bool loss = strcmp(piece->text, "prompt") && !w->prompt_only;
    row_text text;
    if (prompt && !prompt->text.text)
        return kvf__ids_append(w->ctx, w->ids, prompt->ids, prompt->n);
    if (prompt)
        text = prompt->text;
    else
        KVF_TRY(text_field(w, piece->text, &text));
    KVF_TRY(kvf__add_piece(w->ctx, w->render->tokenizer, piece, text.text, text.n, w->ids));
    return label_new(w, loss);
}

/* Appends the pieces of the template. prompt: replaces {prompt} or {text}; NULL: the row's fields
 * are used. */
static kvf_status add_pieces(const row_writer *w, const bare_prompt *prompt)
{
    const kvf__row_template *pattern = w->render->pattern;
    size_t from = w->ids->n;
    KVF_TRY(add_bos(w, false));
    for (size_t i = 0; i < pattern->n; i++) {
        const kvf__template_piece *piece = &pattern->pieces[i];
        from = w->ids->n;
        if (piece->kind == KVF__PIECE_FIELD) {
            if (w->prompt_only && !strcmp(piece->text, "completion")) return KVF_OK;
            KVF_TRY(add_field(w, piece, prompt));
            continue;
        }
        KVF_TRY(kvf__add_piece(w->ctx, w->render->tokenizer, piece, NULL, 0, w->ids));
        KVF_TRY(label_new(w, false));
    }
    return end_row(w, from);
}

/* ---- kinds of rows --------------------------------------------------------------------------- */

static kvf_status write_pair(const row_writer *w)
{
    row_text prompt, completion = {0};
    KVF_TRY(text_field(w, "prompt", &prompt));
    if (!w->prompt_only) KVF_TRY(text_field(w, "completion", &completion));
    return (w->render->wrap_prompts ? add_turns : add_pair)(w, prompt, completion);
}

/* The two prompts of Alpaca (Taori et al. 2023, train.py). */
#define ALPACA "Below is an instruction that describes a task"
#define ALPACA_ASKS                                                                                \
    "Write a response that appropriately completes the request.\n\n### Instruction:\n"
static kvf_status alpaca_prompt(kvf_ctx *ctx, bool chat, row_text instruction, row_text input,
                                kvf__buf *out)
{
    if (!chat)
        KVF_TRY(
            kvf__buf_printf(ctx, out, "%s%s. " ALPACA_ASKS, ALPACA,
                            input.n ? ", paired with an input that provides further context" : ""));
    KVF_TRY(kvf__buf_add(ctx, out, instruction.text, instruction.n));
    if (input.n) KVF_TRY(kvf__buf_printf(ctx, out, "%s", chat ? "\n\n" : "\n\n### Input:\n"));
    if (input.n) KVF_TRY(kvf__buf_add(ctx, out, input.text, input.n));
    return chat ? KVF_OK : kvf__buf_printf(ctx, out, "\n\n### Response:");
}

/* Writes {"instruction"[, "input"], "output"}: a chat of two turns if there is a chat template,
 * else Alpaca's own prompt and the output. */
static kvf_status write_alpaca(const row_writer *w)
{
    row_text instruction, input = {0}, output = {0};
    kvf__buf prompt = {0};
    bool chat = w->render->chat->kind != KVF__CHAT_NONE;
    KVF_TRY(text_field(w, "instruction", &instruction));
    if (kvf_json_typeof(field(w, "input")) > KVF_JSON_NULL) KVF_TRY(text_field(w, "input", &input));
    if (!w->prompt_only) KVF_TRY(text_field(w, "output", &output));
    kvf_status st = alpaca_prompt(w->ctx, chat, instruction, input, &prompt);
    if (!st) st = (chat ? add_turns : add_pair)(w, (row_text){prompt.data, prompt.n}, output);
    kvf__buf_done(&prompt);
    return st;
}

static kvf_status write_text(const row_writer *w)
{
    row_text text;
    if (w->render->encoder && !w->prompt_only)
        return kvf__fail(
            w->ctx, KVF_EDATA,
            "%s: an encoder-decoder needs rows with prompt and completion, not \"text\"", w->where);
    KVF_TRY(text_field(w, "text", &text));
    if (w->render->encoder) return add_prompt(w, text);
    KVF_TRY(add_bos(w, false));
    const size_t from = w->ids->n;
    KVF_TRY(add_text(w, text, !w->prompt_only));
    return end_row(w, from);
}

kvf_status kvf__message_content(kvf_ctx *ctx, const kvf_json *content, kvf__buf *parts,
                                kvf__message *out)
{
    out->content = kvf_json_str(content, &out->bytes);
    if (out->content) return KVF_OK;
    if (kvf_json_typeof(content) != KVF_JSON_ARRAY) return KVF_EDATA;
    for (size_t i = 0; i < kvf_json_size(content); i++) {
        const kvf_json *part = kvf_json_at(content, i);
        const char *type = kvf_json_str(kvf_json_get(part, "type"), NULL);
        size_t bytes = 0;
        const char *text = kvf_json_str(kvf_json_get(part, "text"), &bytes);
        if (!type || strcmp(type, "text") || !text) return KVF_EDATA;
        KVF_TRY(kvf__buf_add(ctx, parts, text, bytes));
    }
    KVF_TRY(kvf__buf_add(ctx, parts, "", 0));
    out->content = parts->data;
    out->bytes = parts->n;
    return KVF_OK;
}

/* Fields of rows and messages that only a model's own template could print. */
static const char *const UNPRINTED[] = {
    "tools",    "functions", "tool_calls", "function_call", "reasoning", "reasoning_content",
    "thinking", "images",    "videos",     "audios"};

/* Refuses fields that are not printed. object: the row, or the message that `place` names. */
static kvf_status refuse_unprinted(const row_writer *w, const kvf_json *object, const char *place)
{
    for (size_t i = 0; i < sizeof UNPRINTED / sizeof *UNPRINTED; i++)
        if (is_given(kvf_json_get(object, UNPRINTED[i])))
            return kvf__fail(w->ctx, KVF_EDATA,
                             "%s: %s\"%s\" is not supported by the known templates: remove the "
                             "row, or render it yourself (--chat-template rendered)",
                             w->where, place, UNPRINTED[i]);
    return KVF_OK;
}

/* Names for the weight of a message: 0 or false for no loss, 1 or true for loss. */
static const char *const WEIGHTS[] = {"weight", "train", "training", "loss", "loss_mask"};
static kvf_status read_weights(const row_writer *w, const kvf_json *value, const char *place,
                               kvf__message *out)
{
    const bool assistant = !strcmp(out->role, "assistant");
    for (size_t i = 0; i < sizeof WEIGHTS / sizeof *WEIGHTS; i++) {
        const kvf_json *given = kvf_json_get(value, WEIGHTS[i]);
        if (kvf_json_typeof(given) <= KVF_JSON_NULL) continue;
        const double weight = kvf_json_bool(given, false)               ? 1
                              : kvf_json_typeof(given) == KVF_JSON_BOOL ? 0
                                                                        : kvf_json_real(given, -1);
        if (weight != 0 && weight != 1)
            return kvf__fail(w->ctx, KVF_EDATA, "%s: %s\"%s\": want 0, 1, false or true", w->where,
                             place, WEIGHTS[i]);
        if (weight == 1 && !assistant)
            return kvf__fail(w->ctx, KVF_EDATA,
                             "%s: %s\"%s\" is 1 for a turn of role \"%.40s\", but only assistant "
                             "turns can have loss: set it to 0",
                             w->where, place, WEIGHTS[i], out->role);
        out->mute = out->mute || weight == 0;
    }
    return KVF_OK;
}

/* Keys of a message: {"role", "content"}, or ShareGPT's {"from", "value"}, which has its own role
 * names. */
static const char *const MESSAGE_KEYS[2][3] = {{"messages", "role", "content"},
                                               {"conversations", "from", "value"}};
static kvf_status read_message(const row_writer *w, const kvf_json *value, size_t i, bool shared,
                               kvf__buf *parts, kvf__message *out)
{
    static const char *const ROLES[][2] = {{"human", "user"},        {"user", "user"},
                                           {"gpt", "assistant"},     {"assistant", "assistant"},
                                           {"chatgpt", "assistant"}, {"system", "system"}};
    const char *const *keys = MESSAGE_KEYS[shared];
    char place[64];
    size_t role_bytes = 0;
    snprintf(place, sizeof place, "%s[%zu]: ", keys[0], i);
    KVF_TRY(refuse_unprinted(w, value, place));
    out->role = kvf_json_str(kvf_json_get(value, keys[1]), &role_bytes);
    kvf_status st = kvf__message_content(w->ctx, kvf_json_get(value, keys[2]), parts, out);
    if (st == KVF_ENOMEM) return st;
    if (!out->role || st || strlen(out->role) != role_bytes)
        return kvf__fail(w->ctx, KVF_EDATA,
                         "%s: %swant {\"%s\": text, \"%s\": text, or parts of type text}", w->where,
                         place, keys[1], keys[2]);
    size_t k = 0;
    while (shared && k < sizeof ROLES / sizeof *ROLES && strcmp(out->role, ROLES[k][0]))
        k++;
    if (k == sizeof ROLES / sizeof *ROLES)
        return kvf__fail(w->ctx, KVF_EDATA, "%s: %sfrom \"%.40s\", want human, gpt or system",
                         w->where, place, out->role);
    if (shared) out->role = ROLES[k][1];
    return read_weights(w, value, place, out);
}

/* Appends the messages of a list to `messages`. parts [n]: a buffer for each message of the
 * list. */
static kvf_status read_list(const row_writer *w, const kvf_json *list, bool shared, kvf__buf *parts,
                            kvf__message *messages, size_t *n)
{
    const bool system = *n && !strcmp(messages[0].role, "system");
    for (size_t i = 0; i < kvf_json_size(list); i++) {
        KVF_TRY(read_message(w, kvf_json_at(list, i), i, shared, &parts[i], &messages[*n]));
        if (!strcmp(messages[(*n)++].role, "system") && system)
            return kvf__fail(w->ctx, KVF_EDATA,
                             "%s: the row has two system turns, %s[%zu] and \"system\"", w->where,
                             MESSAGE_KEYS[shared][0], i);
    }
    return KVF_OK;
}

static kvf_status write_messages(const row_writer *w)
{
    const bool shared = kvf_json_typeof(field(w, "messages")) <= KVF_JSON_NULL &&
                        field(w, "conversations");
    const char *name = MESSAGE_KEYS[shared][0];
    const kvf_json *list = field(w, name);
    const size_t listed = kvf_json_size(list);
    size_t n = 0;
    if (kvf_json_typeof(list) != KVF_JSON_ARRAY || !listed)
        return kvf__fail(w->ctx, KVF_EDATA, "%s: \"%s\" is not a list of messages", w->where, name);
    if (w->render->chat->kind == KVF__CHAT_NONE)
        return kvf__fail(
            w->ctx, KVF_EDATA,
            "%s: \"%s\" needs a chat template, and the base has none: set one with --chat-template",
            w->where, name);
    kvf__message *messages = NULL;
    kvf__buf *parts = NULL;
    KVF_TRY(turns_before(w, listed, &messages, &n));
    kvf_status st = kvf__alloc_array(w->ctx, listed, sizeof *parts, &parts);
    if (!st) st = read_list(w, list, shared, parts, messages, &n);
    if (!st && w->prompt_only)
        while (n && !strcmp(messages[n - 1].role, "assistant"))
            n--;
    if (!st) st = add_messages(w, messages, n, w->prompt_only);
    for (size_t i = 0; parts && i < listed; i++)
        kvf__buf_done(&parts[i]);
    kvf__free(parts);
    kvf__free(messages);
    return st;
}

static kvf_status int_list(kvf_ctx *ctx, const char *where, const kvf_json *list, const char *name,
                           size_t want)
{
    if (kvf_json_typeof(list) != KVF_JSON_ARRAY)
        return kvf__fail(ctx, KVF_EDATA, "%s: \"%s\" is not a list of integers", where, name);
    if (kvf_json_size(list) != want)
        return kvf__fail(ctx, KVF_EDATA, "%s: \"%s\" has %zu entries, \"input_ids\" has %zu", where,
                         name, kvf_json_size(list), want);
    for (size_t i = 0; i < want; i++) {
        int64_t value = kvf_json_int(kvf_json_at(list, i), INT64_MIN);
        if (value < INT32_MIN || value > INT32_MAX)
            return kvf__fail(ctx, KVF_EDATA, "%s: %s[%zu] is not a 32-bit integer", where, name, i);
    }
    return KVF_OK;
}

/* Appends the decoder's tokens of a row of ids, shifted like shift_tokens_right in transformers.
 * -100 is a position without a label, after which the decoder reads padding. The first label must
 * be a token, because batches divide a row there. */
static kvf_status write_source_ids(const row_writer *w, const kvf_json *label)
{
    KVF_TRY(add_id(w, w->render->start, false));
    KVF_TRY(int_list(w->ctx, w->where, label, "labels", kvf_json_size(label)));
    size_t n = kvf_json_size(label);
    while (n && kvf_json_int(kvf_json_at(label, n - 1), 0) == KVF__NO_LABEL)
        n--; /* no label follows */
    for (size_t i = 0; i < n; i++) {
        const int64_t id = kvf_json_int(kvf_json_at(label, i), 0);
        const bool loss = id != KVF__NO_LABEL;
        if (!loss && (w->render->pad < 0 || !i))
            return kvf__fail(w->ctx, KVF_EDATA, "%s: labels[%zu] is -100, %s", w->where, i,
                             i ? "which needs a padding token, and the base has none"
                               : "but the first label of an encoder-decoder must be a token");
        KVF_TRY(add_id(w, loss ? (int32_t)id : w->render->pad, loss));
    }
    return KVF_OK;
}

static kvf_status write_ids(const row_writer *w)
{
    const bool encoder = w->render->encoder;
    const kvf_json *input = field(w, "input_ids"), *label = field(w, "labels");
    const kvf_json *mask = field(w, "attention_mask");
    size_t n = kvf_json_size(input);
    KVF_TRY(int_list(w->ctx, w->where, input, "input_ids", n));
    if (!w->prompt_only && !encoder) KVF_TRY(int_list(w->ctx, w->where, label, "labels", n));
    if (kvf_json_typeof(mask) == KVF_JSON_NULL) mask = NULL;
    if (mask) KVF_TRY(int_list(w->ctx, w->where, mask, "attention_mask", n));
    for (size_t i = 0; i < n; i++) {
        if (mask && kvf_json_int(kvf_json_at(mask, i), 0) == 0) continue;
        int64_t wanted = w->prompt_only || encoder ? KVF__NO_LABEL
                                                   : kvf_json_int(kvf_json_at(label, i), 0);
        KVF_TRY(kvf__ids_add(w->ctx, w->ids, (int32_t)kvf_json_int(kvf_json_at(input, i), 0)));
        KVF_TRY(kvf__ids_add(w->ctx, w->labels, (int32_t)wanted));
    }
    if (encoder && !w->prompt_only) return write_source_ids(w, label);
    return KVF_OK;
}

/* A kind of row, recognised by its fields; the first kind that fits counts. Alpaca's rows may also
 * have a "text". */
typedef struct row_kind {
    const char *field, *and;
    bool turns; /* a chat, which a template prints */
    kvf_status (*write)(const row_writer *w);
    const char *reads; /* other fields that it reads, or knows as copies */
} row_kind;

static const row_kind KINDS[] = {
    {"input_ids", NULL, false, write_ids, " labels attention_mask "},
    {"messages", NULL, true, write_messages, " system history "},
    {"conversations", NULL, true, write_messages, " system history "},
    {"prompt", NULL, false, write_pair, " completion system history "},
    {"instruction", "output", true, write_alpaca, " input system history text "},
    {"text", NULL, false, write_text, " "},
};

static bool is_mapped(const kvf__field_map *map, const row_kind *kind)
{
    for (size_t i = 0; map && i < map->n; i++)
        if (!strcmp(map->ours[i], kind->field) ||
            (kind->write == write_pair && !strcmp(map->ours[i], "completion")))
            return true;
    return false;
}

/* Returns the first kind that fits. least: lowest type of its fields; null counts as present only
 * if no other kind fits. mapped: only kinds whose field --map names, which come first. */
static const row_kind *kind_from(const row_writer *w, kvf_json_type least, bool mapped)
{
    const kvf__field_map *map = w->render->map;
    for (const row_kind *kind = KINDS; kind < KINDS + sizeof KINDS / sizeof *KINDS; kind++)
        if (!(mapped && !is_mapped(map, kind)) && !(kind->turns && is_rendered(w)) &&
            kvf_json_typeof(field(w, kind->field)) >= least &&
            (!kind->and || kvf_json_typeof(field(w, kind->and)) >= least))
            return kind;
    return NULL;
}

static const row_kind *kind_of(const row_writer *w)
{
    const row_kind *kind = kind_from(w, KVF_JSON_BOOL, true);
    if (!kind) kind = kind_from(w, KVF_JSON_BOOL, false);
    return kind ? kind : kind_from(w, KVF_JSON_NULL, false);
}

/* Returns true if the row's kind reads this field of ours. */
static bool reads_ours(const row_writer *w, const char *ours)
{
    const row_kind *kind = kind_of(w);
    char word[64];
    snprintf(word, sizeof word, " %s ", ours);
    if (strstr(" id idx references ", word)) return true;
    if (w->render->pattern && w->render->pattern->n)
        return kvf__row_template_field(w->render->pattern, ours) != NULL;
    return kind && (!strcmp(ours, kind->field) || (kind->and &&!strcmp(ours, kind->and)) ||
                    strstr(kind->reads, word));
}

bool kvf__render_reads(const kvf__render *render, const kvf_json *row, const char *name)
{
    const row_writer w = {.render = render, .row = row};
    const kvf__field_map *map = render->map;
    bool elsewhere = false; /* our field of this name is mapped to another column */
    for (size_t i = 0; map && i < map->n; i++) {
        if (kvf__field_mapped(map, i, name) && reads_ours(&w, map->ours[i])) return true;
        elsewhere = elsewhere || (!map->of_run && !strcmp(map->ours[i], name));
    }
    return !elsewhere && reads_ours(&w, name);
}

const kvf_json *kvf__render_messages(const kvf__render *render, const kvf_json *row)
{
    const row_writer w = {.render = render, .row = row};
    const row_kind *kind = render->pattern && render->pattern->n ? NULL : kind_of(&w);
    return kind && kind->write == write_messages ? field(&w, kind->field) : NULL;
}

bool kvf__message_reads(const char *name)
{
    for (size_t i = 0; i < sizeof WEIGHTS / sizeof *WEIGHTS; i++)
        if (!strcmp(name, WEIGHTS[i])) return true;
    for (size_t i = 0; i < 2; i++)
        if (!strcmp(name, MESSAGE_KEYS[i][1]) || !strcmp(name, MESSAGE_KEYS[i][2])) return true;
    return false;
}

static kvf_status write_row(const row_writer *w)
{
    if (w->render->pattern && w->render->pattern->n) return add_pieces(w, NULL);
    const row_kind *kind = kind_of(w);
    if (kind && kind->write != write_ids && !is_rendered(w))
        KVF_TRY(refuse_unprinted(w, w->row, ""));
    if (kind) return kind->write(w);
    char has[KVF__ROW_HAS_MAX];
    kvf__row_has(w->render->map, w->row, NULL, has);
    return kvf__fail(w->ctx, KVF_EDATA, "%s: none of the fields prompt, text, %sinput_ids; %s",
                     w->where, is_rendered(w) ? "" : "messages, ", has);
}

kvf_status kvf__render_row(kvf_ctx *ctx, const kvf__render *render, const char *where,
                           const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels)
{
    const row_writer w = {ctx, render, where, row, prompt_only, ids, labels};
    if (kvf_json_typeof(row) != KVF_JSON_OBJECT)
        return kvf__fail(ctx, KVF_EDATA, "%s: want a JSON object", where);
    KVF_TRY(add_front(&w));
    size_t from = labels->n;
    KVF_TRY(write_row(&w));
    if (render->pattern && render->pattern->front && labels->n > from)
        labels->data[from] = KVF__NO_LABEL;
    return KVF_OK;
}

/* ---- the form of rows ------------------------------------------------------------------------ */

void kvf__row_form_add(kvf__row_form *form, const char *name, const char *prompt, size_t bytes)
{
    enum { MOST_BEGINNING = 100 };
    size_t n = bytes;
    if (form->name && strcmp(form->name, name)) name = "";
    form->name = name;
    if (!strcmp(name, "text")) {
        const size_t most = n / 2 < MOST_BEGINNING ? n / 2 : MOST_BEGINNING;
        for (n = most; n && prompt[n] != ' ';)
            n--; /* whole words, else whole characters */
        for (n = n ? n : most; n && ((unsigned char)prompt[n] & 0xC0) == 0x80;)
            n--;
    }
    if (!n || *form->example || n > KVF__MOST_EXAMPLE || memchr(prompt, 0, n)) return;
    memcpy(form->example, prompt, n);
}

/* Appends the user's first turn. */
static kvf_status first_turn(const row_writer *w, bool shared, kvf__buf *out)
{
    const char *const *keys = MESSAGE_KEYS[shared];
    const kvf_json *list = field(w, keys[0]);
    for (size_t i = 0; i < kvf_json_size(list); i++) {
        const kvf_json *turn = kvf_json_at(list, i);
        const char *role = kvf_json_str(kvf_json_get(turn, keys[1]), NULL);
        kvf__buf parts = {0};
        kvf__message message = {0};
        if (!role || (strcmp(role, "user") && strcmp(role, "human"))) continue;
        kvf_status st = kvf__message_content(w->ctx, kvf_json_get(turn, keys[2]), &parts, &message);
        if (!st) st = kvf__buf_add(w->ctx, out, message.content, message.bytes);
        kvf__buf_done(&parts);
        return st;
    }
    return KVF_OK;
}

kvf_status kvf__render_form(kvf_ctx *ctx, const kvf__render *render, const kvf_json *row,
                            kvf__row_form *form)
{
    const row_writer w = {.ctx = ctx, .render = render, .row = row};
    const row_kind *kind = kind_of(&w);
    const bool placed = render->pattern && render->pattern->n;
    const char *name = "";
    row_text text = {0}, input = {0};
    kvf__buf made = {0};
    kvf_status st = KVF_OK;
    if (placed || (kind && kind->write == write_pair)) {
        name = render->wrap_prompts ? "chat" : "pairs";
        text.text = kvf_json_str(field(&w, "prompt"), &text.n);
    } else if (kind && kind->write == write_messages) {
        name = "chat";
        st = first_turn(&w, !strcmp(kind->field, MESSAGE_KEYS[1][0]), &made);
    } else if (kind && kind->write == write_alpaca) {
        const bool chat = render->chat->kind != KVF__CHAT_NONE;
        name = chat ? "chat" : "pairs";
        text.text = kvf_json_str(field(&w, "instruction"), &text.n);
        input.text = kvf_json_str(field(&w, "input"), &input.n);
        st = alpaca_prompt(ctx, chat, text, input, &made);
    } else if (kind && kind->write == write_text) {
        name = "text";
        text.text = kvf_json_str(field(&w, "text"), &text.n);
    }
    if (made.n) text = (row_text){made.data, made.n};
    if (!st) kvf__row_form_add(form, name, text.text, text.text ? text.n : 0);
    kvf__buf_done(&made);
    return st;
}

/* ---- prompts --------------------------------------------------------------------------------- */

kvf_status kvf__render_prompt(kvf_ctx *ctx, const kvf__render *render, const char *prompt,
                              size_t bytes, kvf__ids *ids)
{
    const row_writer w = {.ctx = ctx, .render = render, .prompt_only = true, .ids = ids};
    const bare_prompt bare = {.text = {prompt, bytes}};
    KVF_TRY(add_front(&w));
    if (render->pattern && render->pattern->n) return add_pieces(&w, &bare);
    return render->wrap_prompts ? add_turns(&w, bare.text, (row_text){0})
                                : add_prompt(&w, bare.text);
}

kvf_status kvf__render_prompt_ids(kvf_ctx *ctx, const kvf__render *render, const int32_t *prompt,
                                  size_t n, kvf__ids *ids)
{
    const row_writer w = {.ctx = ctx, .render = render, .prompt_only = true, .ids = ids};
    KVF_TRY(add_front(&w));
    if (!render->pattern || !render->pattern->n) return kvf__ids_append(ctx, ids, prompt, n);
    return add_pieces(&w, &(bare_prompt){.ids = prompt, .n = n});
}

kvf_status kvf__render_chat(kvf_ctx *ctx, const kvf__render *render, const kvf__message *messages,
                            size_t n, kvf__ids *ids)
{
    const row_writer w = {.ctx = ctx, .render = render, .ids = ids};
    if (render->pattern && render->pattern->n)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "the prefix has a row template, which does not support chats: use the "
                         "completions endpoint");
    KVF_TRY(add_front(&w));
    return add_messages(&w, messages, n, true);
}
