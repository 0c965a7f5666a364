/* Conversations to ids: rendering of the templates in chat_template.c, for plain chat without
 * tools.
 *
 * The output of a template is collected as text and encoded in parts. Parts end where loss begins
 * or ends, equally in training and generation, so a prompt gets the same ids in both. */
#include "chat_form.h"
#include "tok_work.h"

#include <string.h>

enum {
    BOS = 1,         /* the output begins with BOS */
    STRIP = 2,       /* contents are stripped */
    THREE_ROLES = 4, /* system, user, assistant only; else any role */
    EOS_LAST = 8     /* EOS ends turns without an end token */
};

/* form: used if the kind is named while the tokenizer has another template. A turn is open, role,
 * after, content, close, gap. */
typedef struct chat_row {
    kvf__chat_kind kind;
    const char *name;
    kvf__chat_form form;
    const char *open, *after, *close, *gap; /* close "": EOS, after assistant turns only */
    unsigned flags;
} chat_row;

static const chat_row KINDS[] = {
    {.kind = KVF__CHAT_NONE, .name = "none"},
    {.kind = KVF__CHAT_RENDERED, .name = "rendered"},
    {KVF__CHAT_CHATML, "chatml", KVF__FORM_PLAIN, "<|im_start|>", "\n", "<|im_end|>", "\n", 0},
    {KVF__CHAT_LLAMA3, "llama3", KVF__FORM_PLAIN, "<|start_header_id|>", "<|end_header_id|>\n\n",
     "<|eot_id|>", NULL, BOS | STRIP},
    {.kind = KVF__CHAT_MISTRAL, .form = KVF__FORM_MISTRAL_V1, .name = "mistral"},
    {KVF__CHAT_GEMMA, "gemma", KVF__FORM_GEMMA3, "<start_of_turn>", "\n", "<end_of_turn>", "\n",
     BOS | STRIP | THREE_ROLES},
    {KVF__CHAT_PHI3, "phi3", KVF__FORM_PLAIN, "<|", "|>\n", "<|end|>", "\n",
     THREE_ROLES | EOS_LAST},
    {KVF__CHAT_PHI4, "phi4", KVF__FORM_PLAIN, "<|im_start|>", "<|im_sep|>", "<|im_end|>", NULL,
     THREE_ROLES},
    {KVF__CHAT_PHI4_MINI, "phi4-mini", KVF__FORM_PLAIN, "<|", "|>", "<|end|>", NULL, EOS_LAST},
    {KVF__CHAT_OLMO2, "olmo2", KVF__FORM_PLAIN, "<|", "|>\n", "", "\n", BOS | THREE_ROLES},
    {KVF__CHAT_GRANITE, "granite", KVF__FORM_PLAIN, "<|start_of_role|>", "<|end_of_role|>",
     "<|end_of_text|>", "\n", 0},
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

static const chat_row *row_of(kvf__chat_kind kind)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (KINDS[i].kind == kind) return &KINDS[i];
    return &KINDS[0];
}

static const chat_row *row_named(const char *name, size_t n)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strlen(KINDS[i].name) == n && !memcmp(KINDS[i].name, name, n)) return &KINDS[i];
    return NULL;
}

bool kvf__chat_names(const char *name, kvf__chat_kind kind)
{
    const chat_row *row = row_named(name, strcspn(name, ":"));
    return row && row->kind == kind;
}

const char *kvf__chat_end(const kvf__chat *chat)
{
    const char *close = row_of(chat->kind)->close;
    return close && *close ? close : NULL;
}

const char *kvf__chat_date(const kvf__chat *chat)
{
    if (chat->form != KVF__FORM_LLAMA31) return NULL;
    return chat->date ? chat->date : chat->system;
}

void kvf__chat_done(kvf__chat *chat)
{
    kvf__free(chat->name);
    kvf__free(chat->system);
    *chat = (kvf__chat){0};
}

/* Fails with a line that renders a file of rows with the template, each as a prompt and a
 * completion. */
static kvf_status refuse_template(kvf_ctx *ctx, const char *source)
{
    size_t n = strcspn(source, "\n");
    return kvf__fail(
        ctx, KVF_EUNSUPPORTED,
        "the chat template is none that is known; its first line: %.*s; name one with "
        "--chat-template (none: for rows without messages), or have transformers render the rows: "
        "python3 -c 'import json, sys, transformers; "
        "t = transformers.AutoTokenizer.from_pretrained(sys.argv[1]).apply_chat_template; "
        "[print(json.dumps({\"prompt\": p, \"completion\": t(m, tokenize=False)[len(p):]})) "
        "for m in (json.loads(row)[\"messages\"] for row in sys.stdin) "
        "for p in [t(m[:-1], tokenize=False, add_generation_prompt=True)]]' "
        "BASE <rows.jsonl >rendered.jsonl, and give these with --chat-template rendered",
        (int)(n < 160 ? n : 160), source);
}

static kvf_status refuse_name(kvf_ctx *ctx, const char *name)
{
    kvf__buf names = {0};
    kvf_status st = KVF_OK;
    for (size_t i = 0; !st && i < N_KINDS; i++)
        st = kvf__buf_printf(ctx, &names, ", %s", KINDS[i].name);
    if (!st)
        st = kvf__fail(ctx, KVF_EUSAGE, "chat template \"%s\", want auto%s or no-system", name,
                       names.data);
    kvf__buf_done(&names);
    return st;
}

/* Selects the tokenizer's own template if it is of the given kind (NULL: any), else the plain one
 * of the kind. */
static kvf_status find_form(kvf_ctx *ctx, const char *source, const chat_row *asked,
                            kvf__chat *chat)
{
    const bool reads = !asked || asked->open || asked->kind == KVF__CHAT_MISTRAL;
    if (source && reads) KVF_TRY(kvf__chat_recognise(ctx, source, chat));
    if (!asked) return source && !chat->kind ? refuse_template(ctx, source) : KVF_OK;
    if (chat->kind == asked->kind) return KVF_OK;
    kvf__chat_done(chat);
    chat->kind = asked->kind;
    chat->form = (int)asked->form;
    return KVF_OK;
}

/* Omits the part that a prefix replaces: the template up to the first user turn. */
static kvf_status leave_out_system(kvf_ctx *ctx, kvf__chat *chat)
{
    chat->no_system = true;
    if (row_of(chat->kind)->open && chat->kind != KVF__CHAT_GEMMA) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED, "chat template no-system: %s",
                     chat->kind == KVF__CHAT_NONE
                         ? "the base has no chat template"
                         : "the base's template has no separate system turn");
}

/* Sets the date of "NAME:DATE"; the template must print one. */
static kvf_status set_date(kvf_ctx *ctx, const char *name, kvf__chat *chat)
{
    const size_t n = strcspn(name, ":");
    KVF_TRY(kvf__strdup(ctx, name, &chat->name));
    if (!name[n]) return KVF_OK;
    if (chat->form != KVF__FORM_LLAMA31)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "chat template \"%s\": %.*s of this base prints no date; only Llama 3.1's does", name,
            (int)n, name);
    if (!name[n + 1] || strpbrk(name + n + 1, "\"\\\n"))
        return kvf__fail(ctx, KVF_EUSAGE, "chat template \"%s\": want a date such as 26 Jul 2024",
                         name);
    chat->date = chat->name + n + 1;
    return KVF_OK;
}

kvf_status kvf__chat_init(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *name,
                          kvf__chat *out)
{
    const size_t n = strcspn(name, ":");
    const chat_row *asked = row_named(name, n);
    const bool no_system = !strcmp(name, "no-system");
    kvf__chat chat = {0};

    if (!asked && !no_system && (n != 4 || memcmp(name, "auto", 4))) return refuse_name(ctx, name);
    kvf_status st = find_form(ctx, kvf__tokenizer_chat_template(tokenizer), asked, &chat);
    if (!st && no_system) st = leave_out_system(ctx, &chat);
    if (!st) st = set_date(ctx, name, &chat);
    KVF__GIVE(st, out, chat, kvf__chat_done(&chat));
    return st;
}

/* ---- rendering ------------------------------------------------------------------------------- */

typedef struct render {
    kvf__work w;
    kvf__ids *loss; /* may be NULL */
    kvf__buf part;  /* text not yet encoded */
    bool any;       /* some text was encoded */
    const kvf__message *m;
    size_t n;
} render;

static kvf_status put(render *r, const char *text)
{
    return text ? kvf__buf_add(r->w.ctx, &r->part, text, strlen(text)) : KVF_OK;
}

/* Content of a message, which may contain U+0000. */
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

/* Encodes the text collected since the last call. */
static kvf_status end_part(render *r, int32_t loss)
{
    kvf__text_part part = {.inside = r->any, .continues = r->any && !r->w.ended_in_token};
    size_t before = r->w.out->n, from = 0;

    if (r->w.strips_next) from = kvf__utf8_skip(r->part.data, r->part.n, 0, kvf__is_space);
    if (r->part.n > from)
        KVF_TRY(kvf__encode_part(&r->w, r->part.data + from, r->part.n - from, false, part));
    r->any = r->any || r->part.n > from;
    r->part.n = 0;
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

/* Characters that Python's str.strip removes: White_Space and four ASCII separators. */
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

/* ---- Qwen3's reasoning ------------------------------------------------------------------------
 */

static bool starts_and_ends(chat_text what, const char *head, const char *tail)
{
    size_t head_n = strlen(head), tail_n = strlen(tail);
    return what.n >= head_n && what.n >= tail_n && memcmp(what.text, head, head_n) == 0 &&
           memcmp(what.text + what.n - tail_n, tail, tail_n) == 0;
}

/* Returns the last user turn that is no tool response; the last message if there is none. */
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

/* Returns the position of the first `mark`, or the end. */
static size_t find(chat_text what, const char *mark)
{
    const char *at = memmem(what.text, what.n, mark, strlen(mark));
    return at ? (size_t)(at - what.text) : what.n;
}

/* Returns the text after the last `mark`, or all text. */
static chat_text after_last(chat_text what, const char *mark)
{
    for (size_t at; (at = find(what, mark)) < what.n;) {
        what.text += at + strlen(mark);
        what.n -= at + strlen(mark);
    }
    return what;
}

/* Returns the reasoning of a turn: the text before the first </think> and after the last <think> in
 * it, without surrounding newlines. */
static chat_text find_reasoning(chat_text what)
{
    what.n = find(what, "</think>");
    what = skip_newlines(after_last(what, "<think>"));
    while (what.n && what.text[what.n - 1] == '\n')
        what.n--;
    return what;
}

/* Writes reasoning as Qwen3 does: only after the last query, and in the last turn even if empty. */
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

/* ---- turns of role and content --------------------------------------------------------------- */

static kvf_status check_role(const render *r, const kvf__chat *chat, const chat_row *marks,
                             size_t i, size_t first)
{
    const bool user = is_role(&r->m[i], "user"), users = (i - first) % 2 == 0;

    if (chat->kind == KVF__CHAT_GEMMA && user != users)
        return bad_role(r, i, users ? "user: turns alternate" : "assistant: turns alternate");
    if ((!(marks->flags & THREE_ROLES) && chat->form == KVF__FORM_PLAIN) || user ||
        is_role(&r->m[i], "assistant") || is_role(&r->m[i], "system"))
        return KVF_OK;
    return bad_role(r, i, "system, user or assistant");
}

static kvf_status put_header(render *r, const kvf__chat *chat, const char *role)
{
    const chat_row *marks = row_of(chat->kind);
    KVF_TRY(put(r, marks->open));
    KVF_TRY(put(r, chat->kind == KVF__CHAT_GEMMA && !strcmp(role, "assistant") ? "model" : role));
    return put(r, marks->after);
}

/* Writes the system text, which Gemma 3 puts before the first turn. */
static kvf_status put_gemma_system(render *r, size_t i)
{
    if (i != 1 || !is_role(&r->m[0], "system")) return KVF_OK;
    KVF_TRY(put_content(r, content_of(&r->m[0])));
    return put(r, "\n\n");
}

/* Returns whether the template prints nothing for an empty system turn at this place. */
static bool omits_turn(const render *r, const kvf__chat *chat, size_t i)
{
    const bool omits = chat->form == KVF__FORM_PHI35 || (chat->form == KVF__FORM_LFM2 && i == 0);
    return omits && is_role(&r->m[i], "system") && !content_of(&r->m[i]).n;
}

static kvf_status put_turn(render *r, const kvf__chat *chat, size_t i)
{
    const chat_row *marks = row_of(chat->kind);
    const bool assistant = is_role(&r->m[i], "assistant"), by_eos = !*marks->close;
    const chat_text content = content_of(&r->m[i]);

    if (omits_turn(r, chat, i)) return KVF_OK;
    KVF_TRY(put_header(r, chat, r->m[i].role));
    if (assistant) KVF_TRY(end_part(r, 0));
    if (chat->kind == KVF__CHAT_GEMMA) KVF_TRY(put_gemma_system(r, i));
    if (assistant && chat->form == KVF__FORM_QWEN3)
        KVF_TRY(put_thinking(r, i));
    else
        KVF_TRY((marks->flags & STRIP ? put_stripped : put_content)(r, content));
    KVF_TRY(put(r, marks->close));
    if (assistant && by_eos) KVF_TRY(put_id(r, kvf__token_eos(r->w.t)));
    if (assistant) KVF_TRY(end_part(r, !r->m[i].mute));
    return assistant && by_eos && i + 1 == r->n ? KVF_OK : put(r, marks->gap);
}

/* Writes the header of Llama 3.1, 3.2 and 3.3 without tools, which ends with the system text. */
static kvf_status put_dated_system(render *r, const kvf__chat *chat)
{
    KVF_TRY(put_header(r, chat, "system"));
    KVF_TRY(put(r, "Cutting Knowledge Date: December 2023\nToday Date: "));
    KVF_TRY(put(r, kvf__chat_date(chat)));
    KVF_TRY(put(r, "\n\n"));
    if (is_role(&r->m[0], "system")) KVF_TRY(put_stripped(r, content_of(&r->m[0])));
    return put(r, row_of(chat->kind)->close);
}

/* Writes the template's default system turn if the chat has none. */
static kvf_status put_default_system(render *r, const kvf__chat *chat)
{
    const chat_row *marks = row_of(chat->kind);
    if (!chat->system || is_role(&r->m[0], "system")) return KVF_OK;
    KVF_TRY(put_header(r, chat, "system"));
    KVF_TRY(put(r, chat->system));
    KVF_TRY(put(r, marks->close));
    return put(r, marks->gap);
}

/* Tulu is OLMo 2 without BOS, LFM2 is ChatML with it. */
static bool begins_with_bos(const kvf__chat *chat)
{
    if (chat->no_system || chat->form == KVF__FORM_TULU) return false;
    return row_of(chat->kind)->flags & BOS || chat->form == KVF__FORM_LFM2;
}

static kvf_status turns(render *r, const kvf__chat *chat, bool prompt)
{
    const chat_row *marks = row_of(chat->kind);
    const bool dated = chat->form == KVF__FORM_LLAMA31;
    const size_t first = (dated || chat->form == KVF__FORM_GEMMA3) && is_role(&r->m[0], "system");

    if (begins_with_bos(chat)) KVF_TRY(put_id(r, kvf__token_bos(r->w.t)));
    if (!chat->no_system) KVF_TRY((dated ? put_dated_system : put_default_system)(r, chat));
    for (size_t i = first; i < r->n; i++) {
        KVF_TRY(check_role(r, chat, marks, i, first));
        KVF_TRY(put_turn(r, chat, i));
    }
    if (prompt || chat->always_prompt) return put_header(r, chat, "assistant");
    return marks->flags & EOS_LAST ? put_id(r, kvf__token_eos(r->w.t)) : KVF_OK;
}

/* ---- Mistral --------------------------------------------------------------------------------- */

/* system_last: the system text goes to the last message if it is the user's; else to the first. */
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
    if (form == KVF__FORM_MINISTRAL)
        return (mistral_marks){"[INST]", "[/INST]", " ", true, true, true};
    if (form == KVF__FORM_MISTRAL_NEMO)
        return (mistral_marks){"[INST]", "[/INST]", "", true, false, true};
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
    return end_part(r, !r->m[i].mute);
}

/* A prompt ends with the user's closing mark; no turn is opened. */
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
    if (chat->no_system && is_role(&r->m[0], "system"))
        return kvf__fail(
            r->w.ctx, KVF_EDATA,
            "message 1 is a system turn, but the prefix already replaces the system turn");
    if (chat->kind == KVF__CHAT_NONE)
        return kvf__fail(r->w.ctx, KVF_EUNSUPPORTED,
                         "the base has no chat template, and none is given");
    if (chat->kind == KVF__CHAT_RENDERED)
        return kvf__fail(r->w.ctx, KVF_EUNSUPPORTED,
                         "with --chat-template rendered, prompts are text and not messages: use "
                         "the completions endpoint");
    if (chat->kind == KVF__CHAT_MISTRAL)
        KVF_TRY(mistral(r, chat));
    else
        KVF_TRY(turns(r, chat, prompt));
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
