/* Conversations to ids: the templates of chat_template.c, rendered for plain chat without tools.
 *
 * What a template would print is collected as text and encoded part by part; a part ends where loss
 * begins or ends, at the same places for training and for generation, so a prompt gets the same ids
 * in both. */
#include "chat_form.h"
#include "tok_work.h"

#include <string.h>

static const struct {
    kvf__chat_kind kind;
    kvf__chat_form form;
    const char *name;
} KINDS[] = {
    {KVF__CHAT_NONE, KVF__FORM_PLAIN, "none"},
    {KVF__CHAT_CHATML, KVF__FORM_PLAIN, "chatml"},
    {KVF__CHAT_LLAMA3, KVF__FORM_PLAIN, "llama3"},
    {KVF__CHAT_MISTRAL, KVF__FORM_MISTRAL_V1, "mistral"},
};

const char *kvf__chat_name(kvf__chat_kind kind)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (KINDS[i].kind == kind) return KINDS[i].name;
    return "none";
}

void kvf__chat_done(kvf__chat *chat)
{
    kvf__free(chat->system);
    *chat = (kvf__chat){0};
}

static kvf_status refuse_template(kvf_ctx *ctx, const char *source)
{
    size_t n = strcspn(source, "\n");
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "the chat template is none that is known; its first line: %.*s",
                     (int)(n < 160 ? n : 160), source);
}

/* A kind asked for by name that is also the tokenizer's own comes with all that its own template
 * does. */
kvf_status kvf__chat_init(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *name,
                          kvf__chat *out)
{
    const char *source = kvf__tokenizer_chat_template(tokenizer);
    bool is_auto = strcmp(name, "auto") == 0;
    kvf__chat own = {0};
    size_t i = 0;

    while (!is_auto && i < sizeof KINDS / sizeof *KINDS && strcmp(name, KINDS[i].name) != 0)
        i++;
    if (i == sizeof KINDS / sizeof *KINDS)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "chat template \"%s\", want auto, none, chatml, llama3 or mistral", name);
    if (source && (is_auto || KINDS[i].kind != KVF__CHAT_NONE)) {
        kvf_status st = kvf__chat_recognise(ctx, source, &own);
        if (!st && is_auto && own.kind == KVF__CHAT_NONE) st = refuse_template(ctx, source);
        if (st) {
            kvf__chat_done(&own);
            return st;
        }
    }
    if (!is_auto && own.kind != KINDS[i].kind) {
        kvf__chat_done(&own);
        own = (kvf__chat){.kind = KINDS[i].kind, .form = (int)KINDS[i].form};
    }
    *out = own;
    return KVF_OK;
}

/* ---- rendering ------------------------------------------------------------------------------- */

typedef struct render {
    kvf__work w;
    kvf__ids *loss; /* may be NULL */
    kvf__buf part;  /* not encoded yet */
    bool any;       /* something was */
    const kvf__message *m;
    size_t n;
} render;

static kvf_status put(render *r, const char *text)
{
    return text ? kvf__buf_add(r->w.ctx, &r->part, text, strlen(text)) : KVF_OK;
}

/* The content of a message, which may hold U+0000. */
typedef struct chat_text {
    const char *text;
    size_t n;
} chat_text;

static chat_text content_of(const kvf__message *m)
{
    return (chat_text){m->content, m->bytes ? m->bytes : strlen(m->content)};
}

static kvf_status put_content(render *r, chat_text what)
{
    return kvf__buf_add(r->w.ctx, &r->part, what.text, what.n);
}

static kvf_status put_id(render *r, int32_t id)
{
    return put(r, kvf__token_text(r->w.t, id));
}

/* Encodes what was put since the last end. */
static kvf_status end_part(render *r, int32_t loss)
{
    kvf__text_part part = {.inside = r->any, .continues = r->any && !r->w.ended_in_token};
    size_t before = r->w.out->n;

    if (r->part.n == 0) return KVF_OK;
    KVF_TRY(kvf__encode_part(&r->w, r->part.data, r->part.n, false, part));
    r->part.n = 0;
    r->any = true;
    for (size_t i = before; r->loss && i < r->w.out->n; i++)
        KVF_TRY(kvf__ids_add(r->w.ctx, r->loss, loss));
    return KVF_OK;
}

static bool is_role(const kvf__message *m, const char *role)
{
    return strcmp(m->role, role) == 0;
}

static kvf_status bad_role(const render *r, size_t i, const char *want)
{
    return kvf__fail(r->w.ctx, KVF_EDATA, "message %zu has role \"%.40s\", want %s", i + 1,
                     r->m[i].role, want);
}

/* What Python's str.strip takes off: White_Space and four separators of ASCII. */
static bool is_stripped(uint32_t cp)
{
    return kvf__is_space(cp) || (cp >= 0x1C && cp <= 0x1F);
}

static kvf_status put_stripped(render *r, chat_text what)
{
    size_t start = kvf__utf8_skip(what.text, what.n, 0, is_stripped);
    size_t end = start < what.n ? kvf__utf8_skip_back(what.text, what.n, is_stripped) : start;

    return kvf__buf_add(r->w.ctx, &r->part, what.text + start, end - start);
}

/* ---- ChatML ---------------------------------------------------------------------------------- */

static bool starts_and_ends(chat_text what, const char *head, const char *tail)
{
    size_t head_n = strlen(head), tail_n = strlen(tail);
    return what.n >= head_n && what.n >= tail_n && memcmp(what.text, head, head_n) == 0 &&
           memcmp(what.text + what.n - tail_n, tail, tail_n) == 0;
}

/* The last user turn that is no answer of a tool; the last message if there is none. */
static size_t last_query(const render *r)
{
    for (size_t i = r->n; i-- > 0;)
        if (is_role(&r->m[i], "user") &&
            !starts_and_ends(content_of(&r->m[i]), "<tool_response>", "</tool_response>"))
            return i;
    return r->n - 1;
}

static chat_text skip_newlines(chat_text what)
{
    for (; what.n && *what.text == '\n'; what.n--)
        what.text++;
    return what;
}

/* Position of the first `mark`; the end: there is none. */
static size_t find(chat_text what, const char *mark)
{
    const char *at = memmem(what.text, what.n, mark, strlen(mark));
    return at ? (size_t)(at - what.text) : what.n;
}

/* The text after the last `mark`; all of it where there is none. */
static chat_text after_last(chat_text what, const char *mark)
{
    for (size_t at; (at = find(what, mark)) < what.n;) {
        what.text += at + strlen(mark);
        what.n -= at + strlen(mark);
    }
    return what;
}

/* The reasoning of a turn: the text before the first </think> and after the last <think> of it,
 * without newlines around. */
static chat_text find_reasoning(chat_text what)
{
    what.n = find(what, "</think>");
    what = skip_newlines(after_last(what, "<think>"));
    while (what.n && what.text[what.n - 1] == '\n')
        what.n--;
    return what;
}

/* Qwen3 shows reasoning only after the last query, and there always, even empty, in the last turn.
 */
static kvf_status put_thinking(render *r, size_t i)
{
    chat_text text = content_of(&r->m[i]), reasoning = {"", 0};

    if (find(text, "</think>") < text.n) {
        reasoning = find_reasoning(text);
        text = skip_newlines(after_last(text, "</think>"));
    }
    if (i > last_query(r) && (i + 1 == r->n || reasoning.n > 0)) {
        KVF_TRY(put(r, "<think>\n"));
        KVF_TRY(put_content(r, reasoning));
        KVF_TRY(put(r, "\n</think>\n\n"));
        text = skip_newlines(text);
    }
    return put_content(r, text);
}

static kvf_status chatml_turn(render *r, const kvf__chat *chat, size_t i)
{
    bool assistant = is_role(&r->m[i], "assistant");

    if (chat->form != KVF__FORM_PLAIN && !assistant && !is_role(&r->m[i], "user") &&
        !is_role(&r->m[i], "system"))
        return bad_role(r, i, "system, user or assistant");
    KVF_TRY(put(r, "<|im_start|>"));
    KVF_TRY(put(r, r->m[i].role));
    KVF_TRY(put(r, "\n"));
    if (assistant) KVF_TRY(end_part(r, 0));
    if (assistant && chat->form == KVF__FORM_QWEN3)
        KVF_TRY(put_thinking(r, i));
    else
        KVF_TRY(put_content(r, content_of(&r->m[i])));
    KVF_TRY(put(r, "<|im_end|>"));
    if (assistant) KVF_TRY(end_part(r, 1));
    return put(r, "\n");
}

static kvf_status chatml(render *r, const kvf__chat *chat, bool prompt)
{
    if (chat->system && !is_role(&r->m[0], "system")) {
        KVF_TRY(put(r, "<|im_start|>system\n"));
        KVF_TRY(put(r, chat->system));
        KVF_TRY(put(r, "<|im_end|>\n"));
    }
    for (size_t i = 0; i < r->n; i++)
        KVF_TRY(chatml_turn(r, chat, i));
    return prompt ? put(r, "<|im_start|>assistant\n") : KVF_OK;
}

/* ---- Llama 3 --------------------------------------------------------------------------------- */

static kvf_status llama3(render *r, const kvf__chat *chat, bool prompt)
{
    KVF_TRY(put_id(r, kvf__token_bos(r->w.t)));
    for (size_t i = 0; i < r->n; i++) {
        bool assistant = is_role(&r->m[i], "assistant");
        KVF_TRY(put(r, "<|start_header_id|>"));
        KVF_TRY(put(r, r->m[i].role));
        KVF_TRY(put(r, "<|end_header_id|>\n\n"));
        if (assistant) KVF_TRY(end_part(r, 0));
        KVF_TRY(put_stripped(r, content_of(&r->m[i])));
        KVF_TRY(put(r, "<|eot_id|>"));
        if (assistant) KVF_TRY(end_part(r, 1));
    }
    if (!prompt && !chat->always_prompt) return KVF_OK;
    return put(r, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

/* ---- Mistral --------------------------------------------------------------------------------- */

/* system_last: the system text goes to the last message, if that is the user's; else to the first.
 */
typedef struct mistral_marks {
    const char *open, *close, *answer;
    bool system, strip, system_last;
} mistral_marks;

static mistral_marks marks_of(int form)
{
    if (form == KVF__FORM_MISTRAL_OLD)
        return (mistral_marks){"[INST] ", " [/INST]", "", false, false, false};
    if (form == KVF__FORM_MISTRAL_V3)
        return (mistral_marks){"[INST] ", "[/INST]", " ", true, true, true};
    return (mistral_marks){" [INST] ", " [/INST]", " ", true, false, false};
}

static kvf_status mistral_turn(render *r, const mistral_marks *marks, size_t i, bool assistant,
                               const kvf__message *system)
{
    if (!assistant) {
        KVF_TRY(put(r, marks->open));
        if (system) KVF_TRY(put_content(r, content_of(system)));
        if (system) KVF_TRY(put(r, "\n\n"));
        KVF_TRY(put_content(r, content_of(&r->m[i])));
        return put(r, marks->close);
    }
    KVF_TRY(end_part(r, 0));
    KVF_TRY(put(r, marks->answer));
    KVF_TRY((marks->strip ? put_stripped : put_content)(r, content_of(&r->m[i])));
    KVF_TRY(put_id(r, kvf__token_eos(r->w.t)));
    return end_part(r, 1);
}

/* A prompt ends with the user's closing mark: there is nothing to open. */
static kvf_status mistral(render *r, const kvf__chat *chat)
{
    mistral_marks marks = marks_of(chat->form);
    size_t first = marks.system && is_role(&r->m[0], "system");

    KVF_TRY(put_id(r, kvf__token_bos(r->w.t)));
    for (size_t i = first; i < r->n; i++) {
        bool assistant = (i - first) % 2 == 1;
        bool takes_system = first && i == (marks.system_last ? r->n - 1 : first);
        if (!is_role(&r->m[i], assistant ? "assistant" : "user"))
            return bad_role(r, i,
                            assistant ? "assistant: turns alternate" : "user: turns alternate");
        KVF_TRY(mistral_turn(r, &marks, i, assistant, takes_system ? &r->m[0] : NULL));
    }
    return KVF_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static kvf_status render_all(render *r, const kvf__chat *chat, bool prompt)
{
    if (r->n == 0) return kvf__fail(r->w.ctx, KVF_EDATA, "a conversation without messages");
    switch (chat->kind) {
    case KVF__CHAT_CHATML:
        KVF_TRY(chatml(r, chat, prompt));
        break;
    case KVF__CHAT_LLAMA3:
        KVF_TRY(llama3(r, chat, prompt));
        break;
    case KVF__CHAT_MISTRAL:
        KVF_TRY(mistral(r, chat));
        break;
    default:
        return kvf__fail(r->w.ctx, KVF_EUNSUPPORTED,
                         "the base has no chat template, and none is named");
    }
    return end_part(r, 0);
}

kvf_status kvf__chat_encode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const kvf__chat *chat,
                            const kvf__message *messages, size_t n, bool add_generation_prompt,
                            kvf__ids *out, kvf__ids *loss)
{
    render r = {.w = {.ctx = ctx, .t = tokenizer, .out = out}, .loss = loss, .m = messages, .n = n};
    size_t before = out->n, loss_before = loss ? loss->n : 0;
    kvf_status st = render_all(&r, chat, add_generation_prompt);

    if (st) {
        out->n = before;
        if (loss) loss->n = loss_before;
    }
    kvf__work_done(&r.w);
    kvf__buf_done(&r.part);
    return st;
}
