/* One JSON row to ids and labels: the single function behind train, eval, generate and serve, so
 * that what is measured is what was trained. Prompt and completion are tokenised separately, as at
 * inference, where the completion does not exist yet. */
#include "data_priv.h"

#include <stdlib.h>
#include <string.h>

/* ---- fields ---------------------------------------------------------------------------------- */

static const kvf_json *field(const kvf__render *render, const kvf_json *row, const char *name)
{
    return kvf__field(render->map, row, name);
}

static kvf_status text_field(kvf_ctx *ctx, const kvf__render *render, const char *where,
                             const kvf_json *row, const char *name, const char **out, size_t *bytes)
{
    const kvf_json *value = field(render, row, name);
    *out = kvf_json_str(value, bytes);
    if (*out) return KVF_OK;
    return kvf__fail(ctx, KVF_EDATA, "%s: \"%s\" is %s, want a string", where, name,
                     value ? "not a string" : "missing");
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Labels for the ids that `ids` grew by: the ids themselves, or none. */
static kvf_status label_new(kvf_ctx *ctx, const kvf__ids *ids, kvf__ids *labels, size_t from,
                            bool loss)
{
    for (size_t i = from; i < ids->n; i++)
        KVF_TRY(kvf__ids_add(ctx, labels, loss ? ids->data[i] : KVF__NO_LABEL));
    return KVF_OK;
}

static kvf_status add_text(kvf_ctx *ctx, const kvf__render *render, const char *text, size_t bytes,
                           bool loss, kvf__ids *ids, kvf__ids *labels)
{
    size_t from = ids->n;
    KVF_TRY(kvf__encode(ctx, render->tokenizer, text, bytes, false, ids));
    return label_new(ctx, ids, labels, from, loss);
}

static kvf_status add_bos(kvf_ctx *ctx, const kvf__render *render, kvf__ids *ids, kvf__ids *labels)
{
    if (!kvf__adds_bos(render->tokenizer)) return KVF_OK;
    KVF_TRY(kvf__ids_add(ctx, ids, kvf__token_bos(render->tokenizer)));
    return kvf__ids_add(ctx, labels, KVF__NO_LABEL);
}

static kvf_status add_eos(kvf_ctx *ctx, const kvf__render *render, kvf__ids *ids, kvf__ids *labels)
{
    int32_t eos = kvf__token_eos(render->tokenizer);
    if (eos < 0) return KVF_OK;
    KVF_TRY(kvf__ids_add(ctx, ids, eos));
    return kvf__ids_add(ctx, labels, eos);
}

/* Virtual tokens from `first` on; they carry no loss. */
static kvf_status add_virtual(kvf_ctx *ctx, int64_t first, int64_t n, kvf__ids *ids,
                              kvf__ids *labels)
{
    size_t from = ids->n;
    KVF_TRY(kvf__add_virtual(ctx, first, n, ids));
    return label_new(ctx, ids, labels, from, false);
}

/* kvf__chat_encode says per id whether it carries loss; labels want the id or -100. */
static kvf_status add_messages(kvf_ctx *ctx, const kvf__render *render,
                               const kvf__message *messages, size_t n, bool open, kvf__ids *ids,
                               kvf__ids *labels)
{
    size_t from = ids->n;
    kvf__ids loss = {0};
    kvf_status st = kvf__chat_encode(ctx, render->tokenizer, render->chat, messages, n, open, ids,
                                     &loss);
    for (size_t i = from; !st && i < ids->n; i++)
        st = kvf__ids_add(ctx, labels, loss.data[i - from] ? ids->data[i] : KVF__NO_LABEL);
    kvf__ids_done(&loss);
    return st;
}

/* ---- templates ------------------------------------------------------------------------------- */

kvf_status kvf__add_virtual(kvf_ctx *ctx, int64_t first, int64_t n, kvf__ids *ids)
{
    for (int64_t p = first; p < first + n; p++)
        KVF_TRY(kvf__ids_add(ctx, ids, (int32_t)(-1 - p)));
    return KVF_OK;
}

kvf_status kvf__encode_piece(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, bool blank,
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

static kvf_status add_piece(kvf_ctx *ctx, const kvf__render *render, const kvf__piece *piece,
                            const char *text, size_t bytes, bool loss, kvf__ids *ids,
                            kvf__ids *labels)
{
    size_t from = ids->n;
    if (piece->kind == KVF__PIECE_VIRTUAL)
        return add_virtual(ctx, piece->first, piece->n, ids, labels);
    if (piece->kind == KVF__PIECE_MASK)
        KVF_TRY(kvf__ids_add(ctx, ids, kvf__token_mask(render->tokenizer)));
    else
        KVF_TRY(kvf__encode_piece(ctx, render->tokenizer, piece->blank, text, bytes, ids));
    return label_new(ctx, ids, labels, from, loss);
}

/* prompt: what stands for {prompt} or {text}, or NULL: the row's fields do. */
static kvf_status add_pieces(kvf_ctx *ctx, const kvf__render *render, const char *where,
                             const kvf_json *row, const char *prompt, size_t prompt_bytes,
                             bool prompt_only, kvf__ids *ids, kvf__ids *labels)
{
    const kvf__row_template *pattern = render->pattern;
    KVF_TRY(add_bos(ctx, render, ids, labels));
    for (size_t i = 0; i < pattern->n; i++) {
        const kvf__piece *piece = &pattern->pieces[i];
        bool field = piece->kind == KVF__PIECE_FIELD;
        bool loss = field && strcmp(piece->text, "prompt") && !prompt_only;
        const char *text = field ? prompt : piece->text;
        size_t bytes = field ? prompt_bytes : text ? strlen(text) : 0;
        if (field && prompt_only && !strcmp(piece->text, "completion")) return KVF_OK;
        if (field && !text)
            KVF_TRY(text_field(ctx, render, where, row, piece->text, &text, &bytes));
        KVF_TRY(add_piece(ctx, render, piece, text, bytes, loss, ids, labels));
    }
    return prompt_only ? KVF_OK : add_eos(ctx, render, ids, labels);
}

static kvf_status add_prompt(kvf_ctx *ctx, const kvf__render *render, const char *text,
                             size_t bytes, kvf__ids *ids, kvf__ids *labels)
{
    KVF_TRY(add_bos(ctx, render, ids, labels));
    return add_text(ctx, render, text, bytes, false, ids, labels);
}

static kvf_status add_completion(kvf_ctx *ctx, const kvf__render *render, const char *text,
                                 size_t bytes, kvf__ids *ids, kvf__ids *labels)
{
    KVF_TRY(add_text(ctx, render, text, bytes, true, ids, labels));
    return add_eos(ctx, render, ids, labels);
}

/* ---- kinds of rows --------------------------------------------------------------------------- */

static kvf_status row_prompt(kvf_ctx *ctx, const kvf__render *render, const char *where,
                             const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels)
{
    const char *prompt = NULL, *completion = NULL;
    size_t prompt_bytes = 0, completion_bytes = 0;
    KVF_TRY(text_field(ctx, render, where, row, "prompt", &prompt, &prompt_bytes));
    if (!prompt_only)
        KVF_TRY(text_field(ctx, render, where, row, "completion", &completion, &completion_bytes));
    if (render->wrap_prompts) {
        kvf__message turns[2] = {{"user", prompt, prompt_bytes},
                                 {"assistant", completion, completion_bytes}};
        return add_messages(ctx, render, turns, prompt_only ? 1 : 2, prompt_only, ids, labels);
    }
    KVF_TRY(add_prompt(ctx, render, prompt, prompt_bytes, ids, labels));
    return prompt_only ? KVF_OK
                       : add_completion(ctx, render, completion, completion_bytes, ids, labels);
}

/* Alpaca's two prompts (Taori et al. 2023, train.py). */
#define ALPACA "Below is an instruction that describes a task"
#define ALPACA_ASKS                                                                                \
    "Write a response that appropriately completes the request.\n\n### Instruction:\n"
static kvf_status alpaca_prompt(kvf_ctx *ctx, bool chat, const kvf__message *instruction,
                                const kvf__message *input, kvf__buf *out)
{
    if (!chat)
        KVF_TRY(kvf__buf_printf(
            ctx, out, "%s%s. " ALPACA_ASKS, ALPACA,
            input->bytes ? ", paired with an input that provides further context" : ""));
    KVF_TRY(kvf__buf_add(ctx, out, instruction->content, instruction->bytes));
    if (input->bytes) KVF_TRY(kvf__buf_printf(ctx, out, "%s", chat ? "\n\n" : "\n\n### Input:\n"));
    if (input->bytes) KVF_TRY(kvf__buf_add(ctx, out, input->content, input->bytes));
    return chat ? KVF_OK : kvf__buf_printf(ctx, out, "\n\n### Response:");
}

/* {"instruction"[, "input"], "output"}: a chat of two turns where the base has a template for it,
 * else behind Alpaca's own prompt. */
static kvf_status row_alpaca(kvf_ctx *ctx, const kvf__render *render, const char *where,
                             const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels)
{
    kvf__message instruction = {0}, input = {0},
                 turns[2] = {{.role = "user"}, {.role = "assistant"}};
    kvf__buf prompt = {0};
    bool chat = render->chat->kind != KVF__CHAT_NONE;
    KVF_TRY(text_field(ctx, render, where, row, "instruction", &instruction.content,
                       &instruction.bytes));
    if (kvf_json_typeof(field(render, row, "input")) > KVF_JSON_NULL)
        KVF_TRY(text_field(ctx, render, where, row, "input", &input.content, &input.bytes));
    if (!prompt_only)
        KVF_TRY(text_field(ctx, render, where, row, "output", &turns[1].content, &turns[1].bytes));
    kvf_status st = alpaca_prompt(ctx, chat, &instruction, &input, &prompt);
    turns[0].content = prompt.data ? prompt.data : "";
    turns[0].bytes = prompt.n;
    if (!st && chat)
        st = add_messages(ctx, render, turns, prompt_only ? 1 : 2, prompt_only, ids, labels);
    else if (!st)
        st = add_prompt(ctx, render, turns[0].content, prompt.n, ids, labels);
    if (!st && !chat && !prompt_only)
        st = add_completion(ctx, render, turns[1].content, turns[1].bytes, ids, labels);
    kvf__buf_done(&prompt);
    return st;
}

static kvf_status row_text(kvf_ctx *ctx, const kvf__render *render, const char *where,
                           const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels)
{
    const char *text = NULL;
    size_t bytes = 0;
    KVF_TRY(text_field(ctx, render, where, row, "text", &text, &bytes));
    KVF_TRY(add_bos(ctx, render, ids, labels));
    KVF_TRY(add_text(ctx, render, text, bytes, !prompt_only, ids, labels));
    return prompt_only ? KVF_OK : add_eos(ctx, render, ids, labels);
}

static kvf_status read_message(kvf_ctx *ctx, const char *where, const kvf_json *value, size_t i,
                               kvf__message *out)
{
    size_t role_bytes = 0;
    out->role = kvf_json_str(kvf_json_get(value, "role"), &role_bytes);
    out->content = kvf_json_str(kvf_json_get(value, "content"), &out->bytes);
    if (out->role && strlen(out->role) == role_bytes && out->content) return KVF_OK;
    return kvf__fail(ctx, KVF_EDATA, "%s: messages[%zu]: want {\"role\": text, \"content\": text}",
                     where, i);
}

/* ShareGPT's {"from", "value"}, with its names of the two sides. */
static kvf_status read_turn(kvf_ctx *ctx, const char *where, const kvf_json *value, size_t i,
                            kvf__message *out)
{
    static const char *const ROLES[][2] = {{"human", "user"},        {"user", "user"},
                                           {"gpt", "assistant"},     {"assistant", "assistant"},
                                           {"chatgpt", "assistant"}, {"system", "system"}};
    const char *from = kvf_json_str(kvf_json_get(value, "from"), NULL);
    out->content = kvf_json_str(kvf_json_get(value, "value"), &out->bytes);
    if (!from || !out->content)
        return kvf__fail(ctx, KVF_EDATA,
                         "%s: conversations[%zu]: want {\"from\": text, \"value\": text}", where,
                         i);
    for (size_t k = 0; k < sizeof ROLES / sizeof *ROLES; k++)
        if (!strcmp(from, ROLES[k][0])) {
            out->role = ROLES[k][1];
            return KVF_OK;
        }
    return kvf__fail(ctx, KVF_EDATA,
                     "%s: conversations[%zu]: from \"%.40s\", want human, gpt or system", where, i,
                     from);
}

static kvf_status row_messages(kvf_ctx *ctx, const kvf__render *render, const char *where,
                               const kvf_json *row, bool prompt_only, kvf__ids *ids,
                               kvf__ids *labels)
{
    const bool shared = !field(render, row, "messages");
    const char *name = shared ? "conversations" : "messages";
    const kvf_json *list = field(render, row, name);
    size_t n = kvf_json_size(list);
    if (kvf_json_typeof(list) != KVF_JSON_ARRAY || !n)
        return kvf__fail(ctx, KVF_EDATA, "%s: \"%s\" is not a list of messages", where, name);
    if (render->chat->kind == KVF__CHAT_NONE)
        return kvf__fail(ctx, KVF_EDATA,
                         "%s: \"%s\" needs a chat template, and the base has none: name one with "
                         "--chat-template",
                         where, name);
    kvf__message *messages = NULL;
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *messages, &messages));
    kvf_status st = KVF_OK;
    for (size_t i = 0; !st && i < n; i++)
        st = (shared ? read_turn : read_message)(ctx, where, kvf_json_at(list, i), i, &messages[i]);
    if (!st && prompt_only)
        while (n && !strcmp(messages[n - 1].role, "assistant"))
            n--;
    if (!st) st = add_messages(ctx, render, messages, n, prompt_only, ids, labels);
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

static kvf_status row_ids(kvf_ctx *ctx, const kvf__render *render, const char *where,
                          const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels)
{
    const kvf_json *input = field(render, row, "input_ids"), *label = field(render, row, "labels");
    const kvf_json *mask = field(render, row, "attention_mask");
    size_t n = kvf_json_size(input);
    KVF_TRY(int_list(ctx, where, input, "input_ids", n));
    if (!prompt_only) KVF_TRY(int_list(ctx, where, label, "labels", n));
    if (mask) KVF_TRY(int_list(ctx, where, mask, "attention_mask", n));
    for (size_t i = 0; i < n; i++) {
        if (mask && kvf_json_int(kvf_json_at(mask, i), 0) == 0) continue;
        KVF_TRY(kvf__ids_add(ctx, ids, (int32_t)kvf_json_int(kvf_json_at(input, i), 0)));
        int64_t wanted = prompt_only ? KVF__NO_LABEL : kvf_json_int(kvf_json_at(label, i), 0);
        KVF_TRY(kvf__ids_add(ctx, labels, (int32_t)wanted));
    }
    return KVF_OK;
}

/* A row behind the virtual tokens that lead it. */
static kvf_status own_row(kvf_ctx *ctx, const kvf__render *render, const char *where,
                          const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels)
{
    if (render->pattern && render->pattern->n)
        return add_pieces(ctx, render, where, row, NULL, 0, prompt_only, ids, labels);
    if (field(render, row, "input_ids"))
        return row_ids(ctx, render, where, row, prompt_only, ids, labels);
    if (field(render, row, "messages") || field(render, row, "conversations"))
        return row_messages(ctx, render, where, row, prompt_only, ids, labels);
    if (field(render, row, "prompt"))
        return row_prompt(ctx, render, where, row, prompt_only, ids, labels);
    if (field(render, row, "instruction") && field(render, row, "output")) /* beside a "text" too */
        return row_alpaca(ctx, render, where, row, prompt_only, ids, labels);
    if (field(render, row, "text"))
        return row_text(ctx, render, where, row, prompt_only, ids, labels);
    return kvf__fail(
        ctx, KVF_EDATA,
        "%s: none of the fields prompt, text, messages, input_ids (name others with --map)", where);
}

kvf_status kvf__render_row(kvf_ctx *ctx, const kvf__render *render, const char *where,
                           const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels)
{
    int64_t common = render->pattern ? render->pattern->common : 0;
    if (kvf_json_typeof(row) != KVF_JSON_OBJECT)
        return kvf__fail(ctx, KVF_EDATA, "%s: want a JSON object", where);
    KVF_TRY(add_virtual(ctx, 0, common, ids, labels));
    size_t from = labels->n;
    KVF_TRY(own_row(ctx, render, where, row, prompt_only, ids, labels));
    if (common && labels->n > from) labels->data[from] = KVF__NO_LABEL;
    return KVF_OK;
}

static kvf_status prompt_pieces(kvf_ctx *ctx, const kvf__render *render, const char *prompt,
                                size_t bytes, kvf__ids *ids)
{
    kvf__ids labels = {0};
    kvf_status st = add_pieces(ctx, render, "", NULL, prompt, bytes, true, ids, &labels);
    kvf__ids_done(&labels);
    return st;
}

kvf_status kvf__render_prompt(kvf_ctx *ctx, const kvf__render *render, const char *prompt,
                              size_t bytes, kvf__ids *ids)
{
    if (render->pattern) KVF_TRY(kvf__add_virtual(ctx, 0, render->pattern->common, ids));
    if (render->pattern && render->pattern->n)
        return prompt_pieces(ctx, render, prompt, bytes, ids);
    if (render->wrap_prompts) {
        kvf__message turn = {"user", prompt, bytes};
        return kvf__chat_encode(ctx, render->tokenizer, render->chat, &turn, 1, true, ids, NULL);
    }
    if (kvf__adds_bos(render->tokenizer))
        KVF_TRY(kvf__ids_add(ctx, ids, kvf__token_bos(render->tokenizer)));
    return kvf__encode(ctx, render->tokenizer, prompt, bytes, false, ids);
}

/* The row's texts around a prompt that is ids. */
static kvf_status pieces_of_ids(kvf_ctx *ctx, const kvf__render *render, const int32_t *prompt,
                                size_t n, kvf__ids *ids, kvf__ids *labels)
{
    const kvf__row_template *pattern = render->pattern;
    KVF_TRY(add_bos(ctx, render, ids, labels));
    for (size_t i = 0; i < pattern->n; i++) {
        const kvf__piece *piece = &pattern->pieces[i];
        if (piece->kind != KVF__PIECE_FIELD) {
            size_t bytes = piece->text ? strlen(piece->text) : 0;
            KVF_TRY(add_piece(ctx, render, piece, piece->text, bytes, false, ids, labels));
        } else if (!strcmp(piece->text, "completion")) {
            break;
        } else {
            KVF_TRY(kvf__ids_append(ctx, ids, prompt, n));
        }
    }
    return KVF_OK;
}

kvf_status kvf__render_prompt_ids(kvf_ctx *ctx, const kvf__render *render, const int32_t *prompt,
                                  size_t n, kvf__ids *ids)
{
    kvf__ids labels = {0};
    if (render->pattern) KVF_TRY(kvf__add_virtual(ctx, 0, render->pattern->common, ids));
    if (!render->pattern || !render->pattern->n) return kvf__ids_append(ctx, ids, prompt, n);
    kvf_status st = pieces_of_ids(ctx, render, prompt, n, ids, &labels);
    kvf__ids_done(&labels);
    return st;
}

kvf_status kvf__render_chat(kvf_ctx *ctx, const kvf__render *render, const kvf__message *messages,
                            size_t n, kvf__ids *ids)
{
    if (render->pattern && render->pattern->n)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "rows of this prefix follow a template that has no place for a chat: send "
                         "a completion's prompt");
    if (render->pattern) KVF_TRY(kvf__add_virtual(ctx, 0, render->pattern->common, ids));
    return kvf__chat_encode(ctx, render->tokenizer, render->chat, messages, n, true, ids, NULL);
}
