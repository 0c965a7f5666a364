/* Recognising a chat template by its source.
 *
 * Jinja is not executed. The source is brought to a canonical form without differences of spelling:
 * white space, quotes, item or attribute access, trim markers and trim_blocks applied, adjacent
 * literals joined. This form is compared with those of the supported templates. Short templates
 * must match as a whole. Long ones with tool branches must contain the statements of plain chat in
 * order, and nothing else that opens a turn. Any other template is unsupported. */
#include "chat_form.h"

#include <string.h>

/* ---- the canonical form ---------------------------------------------------------------------- */

typedef struct lexer {
    kvf_ctx *ctx;
    const char *s, *end;
    kvf__buf out;
} lexer;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool ends_with(const kvf__buf *buf, const char *tail)
{
    size_t n = strlen(tail);
    return buf->n >= n && memcmp(buf->data + buf->n - n, tail, n) == 0;
}

/* Appends text outside of tags, as it would be printed. lstrip_blocks removes blanks before a block
 * at the start of a line, "{%-" all of them. */
static kvf_status put_text(lexer *lx, const char *s, size_t n, bool line_start, char tag, bool trim)
{
    size_t kept = n;

    while (trim && kept > 0 && is_blank(s[kept - 1]))
        kept--;
    if (!trim && (tag == '%' || tag == '#')) {
        while (kept > 0 && (s[kept - 1] == ' ' || s[kept - 1] == '\t'))
            kept--;
        if (kept > 0 ? s[kept - 1] != '\n' : !line_start) kept = n;
    }
    return kvf__buf_add(lx->ctx, &lx->out, s, kept);
}

/* Appends 'text' with decoded escapes, joined to a literal before a +. */
static kvf_status put_literal(lexer *lx)
{
    char quote = *lx->s++;

    if (ends_with(&lx->out, "'+"))
        lx->out.n -= 2;
    else
        KVF_TRY(kvf__buf_addc(lx->ctx, &lx->out, '\''));
    for (; lx->s < lx->end && *lx->s != quote; lx->s++) {
        char c = *lx->s;
        if (c == '\\' && lx->s + 1 < lx->end) {
            c = *++lx->s;
            if (c == 'n') c = '\n';
            if (c == 't') c = '\t';
        }
        KVF_TRY(kvf__buf_addc(lx->ctx, &lx->out, c));
    }
    if (lx->s < lx->end) lx->s++;
    return kvf__buf_addc(lx->ctx, &lx->out, '\'');
}

/* Recognises ["name"], which becomes .name; false for any other bracket. */
static bool item_name(const lexer *lx, const char **name, size_t *n, const char **after)
{
    const char *p = lx->s + 1;

    while (p < lx->end && is_blank(*p))
        p++;
    if (p >= lx->end || (*p != '\'' && *p != '"')) return false;
    char quote = *p++;
    *name = p;
    while (p < lx->end && ((*p >= 'a' && *p <= 'z') || *p == '_'))
        p++;
    *n = (size_t)(p - *name);
    if (p >= lx->end || *p++ != quote || *n == 0) return false;
    while (p < lx->end && is_blank(*p))
        p++;
    if (p >= lx->end || *p != ']') return false;
    *after = p + 1;
    return true;
}

static bool at(const lexer *lx, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(lx->end - lx->s) >= n && memcmp(lx->s, text, n) == 0;
}

/* Appends a tag, from after "{%" or "{{" to its end; *trim: white space after it is removed too. */
static kvf_status put_tag(lexer *lx, char kind, bool *trim)
{
    char open[] = {'{', kind, '\0'}, close[] = {kind == '{' ? '}' : kind, '}', '\0'};

    KVF_TRY(kvf__buf_add(lx->ctx, &lx->out, open, 2));
    while (lx->s < lx->end && !at(lx, close)) {
        const char *name, *after;
        size_t n;
        *trim = *lx->s == '-';
        if (*lx->s == '-' && lx->s + 1 < lx->end && memcmp(lx->s + 1, close, 1) == 0) {
            lx->s++;
        } else if (*lx->s == '\'' || *lx->s == '"') {
            KVF_TRY(put_literal(lx));
        } else if (*lx->s == '[' && item_name(lx, &name, &n, &after)) {
            KVF_TRY(kvf__buf_addc(lx->ctx, &lx->out, '.'));
            KVF_TRY(kvf__buf_add(lx->ctx, &lx->out, name, n));
            lx->s = after;
        } else {
            if (!is_blank(*lx->s)) KVF_TRY(kvf__buf_addc(lx->ctx, &lx->out, *lx->s));
            lx->s++;
        }
    }
    *trim = *trim && lx->s[-1] == '-';
    lx->s += lx->s < lx->end ? 2 : 0;
    return kvf__buf_add(lx->ctx, &lx->out, close, 2);
}

static void skip_comment(lexer *lx, bool *trim)
{
    while (lx->s < lx->end && !at(lx, "#}"))
        lx->s++;
    *trim = lx->s < lx->end && lx->s[-1] == '-';
    lx->s += lx->s < lx->end ? 2 : 0;
}

/* Appends one tag with the text before it. */
static kvf_status put_next(lexer *lx, bool *line_start)
{
    const char *text = lx->s;

    while (lx->s < lx->end && !(at(lx, "{{") || at(lx, "{%") || at(lx, "{#")))
        lx->s++;
    if (lx->s == lx->end) return kvf__buf_add(lx->ctx, &lx->out, text, (size_t)(lx->end - text));
    char kind = lx->s[1];
    bool trim = lx->s + 2 < lx->end && lx->s[2] == '-';
    KVF_TRY(put_text(lx, text, (size_t)(lx->s - text), *line_start, kind, trim));
    lx->s += trim ? 3 : 2;
    trim = false;
    if (kind == '#')
        skip_comment(lx, &trim);
    else
        KVF_TRY(put_tag(lx, kind, &trim));
    *line_start = kind != '{' && lx->s < lx->end && *lx->s == '\n';
    if (*line_start) lx->s++; /* trim_blocks */
    while (trim && lx->s < lx->end && is_blank(*lx->s))
        lx->s++;
    return KVF_OK;
}

/* Jinja drops one newline at the end of the template. */
static kvf_status canonical(lexer *lx)
{
    bool line_start = true;

    if (lx->s < lx->end && lx->end[-1] == '\n') lx->end--;
    KVF_TRY(kvf__buf_add(lx->ctx, &lx->out, "", 0));
    while (lx->s < lx->end)
        KVF_TRY(put_next(lx, &line_start));
    return KVF_OK;
}

/* ---- the templates --------------------------------------------------------------------------- */

#define HOLE "\1" /* the default system text */
#define GEN_DEFINED                                                                                \
    "{%ifnotadd_generation_promptisdefined%}{%setadd_generation_prompt=false%}{%endif%}"
#define CHATML_TURN "{{'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>\n'}}"
#define CHATML_GEN  "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}{%endif%}"
#define CHATML_FIRST                                                                               \
    "{%ifloop.firstandmessages[0].role!='system'%}{{'<|im_start|>system\n" HOLE                    \
    "<|im_end|>\n'}}{%endif%}"
#define LLAMA3_TURNS                                                                               \
    "{%setloop_messages=messages%}{%formessageinloop_messages%}{%setcontent='<|start_header_id|>'" \
    "+message.role+"                                                                               \
    "'<|end_header_id|>\n\n'+message.content|trim+'<|eot_id|>'%}{%ifloop.index0==0%}{%setcontent=" \
    "bos_token+content%}"                                                                          \
    "{%endif%}{{content}}{%endfor%}"
#define LLAMA3_GEN "{{'<|start_header_id|>assistant<|end_header_id|>\n\n'}}"
#define ALTERNATE_OLD                                                                              \
    "{%if(message.role=='user')!=(loop.index0%2==0)%}{{raise_exception('Conversation roles must "  \
    "alternate "                                                                                   \
    "user/assistant/user/assistant/...')}}{%endif%}"
#define SYSTEM_FIRST                                                                               \
    "{%ifmessages[0].role=='system'%}{%setsystem_message=messages[0].content%}{%setloop_messages=" \
    "messages[1:]%}"                                                                               \
    "{%else%}{%setloop_messages=messages%}{%endif%}"

#define ROLE_MODEL                                                                                 \
    "{%if(message.role=='assistant')%}{%setrole='model'%}{%else%}{%setrole=message.role%}{%endif%" \
    "}"
#define GEMMA_GEN "{%ifadd_generation_prompt%}{{'<start_of_turn>model\n'}}{%endif%}"
#define PHI3_TURN(role)                                                                            \
    "{%elifmessage.role=='" role "'%}{{'<|" role "|>\n'+message.content+'<|end|>\n'}}"
#define PHI3_REST                                                                                  \
    "{{'<|system|>\n'+message.content+'<|end|>\n'}}" PHI3_TURN("user")                             \
        PHI3_TURN("assistant") "{%endif%}{%endfor%}"                                               \
                               "{%ifadd_generation_prompt%}{{'<|assistant|>\n'}}{%else%}{{eos_"    \
                               "token}}{%endif%}"
#define PHI4_TURN(role)                                                                            \
    "if(message.role=='" role "')%}"                                                               \
    "{{'<|im_start|>" role "<|im_sep|>'+message.content+'<|im_end|>'}}"

/* The parts of each template, in order. */
#define SMOLLM        "{%formessageinmessages%}" CHATML_FIRST CHATML_TURN "{%endfor%}" CHATML_GEN
#define CHATML        "{%formessageinmessages%}" CHATML_TURN "{%endfor%}" CHATML_GEN
#define LLAMA3_ALWAYS LLAMA3_TURNS LLAMA3_GEN
#define LLAMA3_ASKED  LLAMA3_TURNS "{%ifadd_generation_prompt%}" LLAMA3_GEN "{%endif%}"
#define LLAMA31                                                                                    \
    "{{bos_token}}", "{%setdate_string='" HOLE "'%}",                                              \
        "{%ifmessages[0].role=='system'%}{%setsystem_message=messages[0].content|trim%}"           \
        "{%setmessages=messages[1:]%}{%else%}{%setsystem_message=''%}{%endif%}"                    \
        "{{'<|start_header_id|>system<|end_header_id|>\n\n'}}",                                    \
        "{{'Cutting Knowledge Date: December 2023\n'}}{{'Today Date: '+date_string+'\n\n'}}",      \
        "{{system_message}}{{'<|eot_id|>'}}",                                                      \
        "{%formessageinmessages%}{%ifnot(message.role=='ipython'ormessage.role=='tool'or"          \
        "'tool_calls'inmessage)%}{{'<|start_header_id|>'+message.role+"                            \
        "'<|end_header_id|>\n\n'+message.content|trim+'<|eot_id|>'}}",                             \
        "{%endfor%}{%ifadd_generation_prompt%}" LLAMA3_GEN "{%endif%}"
#define GEMMA2                                                                                     \
    "{{bos_token}}{%ifmessages[0].role=='system'%}{{raise_exception('System role not supported')}" \
    "}{%endif%}{%formessageinmessages%}" ALTERNATE_OLD ROLE_MODEL                                  \
    "{{'<start_of_turn>'+role+'\n'+message.content|trim+'<end_of_turn>\n'}}{%endfor%}" GEMMA_GEN
#define GEMMA3                                                                                     \
    "{{bos_token}}{%ifmessages[0].role=='system'%}{%ifmessages[0].contentisstring%}"               \
    "{%setfirst_user_prefix=messages[0].content+'\n\n'%}",                                         \
        "{%setloop_messages=messages[1:]%}{%else%}{%setfirst_user_prefix=''%}"                     \
        "{%setloop_messages=messages%}{%endif%}{%formessageinloop_messages%}" ALTERNATE_OLD        \
            ROLE_MODEL "{{'<start_of_turn>'+role+'\n'+(first_user_prefixifloop.firstelse'')}}"     \
        "{%ifmessage.contentisstring%}{{message.content|trim}}",                                   \
        "{{'<end_of_turn>\n'}}{%endfor%}" GEMMA_GEN
#define PHI3  "{%formessageinmessages%}{%ifmessage.role=='system'%}" PHI3_REST
#define PHI35 "{%formessageinmessages%}{%ifmessage.role=='system'andmessage.content%}" PHI3_REST
#define PHI4                                                                                       \
    "{%formessageinmessages%}{%" PHI4_TURN("system") "{%el" PHI4_TURN("user") "{%el" PHI4_TURN(    \
        "assistant") "{%endif%}{%endfor%}"                                                         \
                     "{%ifadd_generation_prompt%}{{'<|im_start|>assistant<|im_sep|>'}}{%endif%}"
#define PHI4_MINI                                                                                  \
    "{%formessageinmessages%}"                                                                     \
    "{%ifmessage.role=='system'and'tools'inmessageandmessage.toolsisnotnone%}"                     \
    "{{'<|'+message.role+'|>'+message.content+'<|tool|>'+message.tools+'<|/tool|><|end|>'}}"       \
    "{%else%}{{'<|'+message.role+'|>'+message.content+'<|end|>'}}{%endif%}{%endfor%}"              \
    "{%ifadd_generation_prompt%}{{'<|assistant|>'}}{%else%}{{eos_token}}{%endif%}"
#define TULU                                                                                       \
    "{%formessageinmessages%}"                                                                     \
    "{%ifmessage.role=='system'%}{{'<|system|>\n'+message.content+'\n'}}"                          \
    "{%elifmessage.role=='user'%}{{'<|user|>\n'+message.content+'\n'}}"                            \
    "{%elifmessage.role=='assistant'%}"                                                            \
    "{%ifnotloop.last%}{{'<|assistant|>\n'+message.content+eos_token+'\n'}}"                       \
    "{%else%}{{'<|assistant|>\n'+message.content+eos_token}}{%endif%}{%endif%}"                    \
    "{%ifloop.lastandadd_generation_prompt%}{{'<|assistant|>\n'}}{%endif%}{%endfor%}"
#define OLMO2 "{{bos_token}}" TULU
#define MISTRAL_OLD                                                                                \
    "{{bos_token}}{%formessageinmessages%}" ALTERNATE_OLD                                          \
    "{%ifmessage.role=='user'%}{{'[INST] '+message.content+' [/INST]'}}"                           \
    "{%elifmessage.role=='assistant'%}{{message.content+eos_token}}"                               \
    "{%else%}{{raise_exception('Only user and assistant roles are supported!')}}"                  \
    "{%endif%}{%endfor%}"
#define MISTRAL_V1                                                                                 \
    SYSTEM_FIRST "{{bos_token}}{%formessageinloop_messages%}",                                     \
        "{%ifmessage.role=='user'%}{%ifloop.firstandsystem_messageisdefined%}"                     \
        "{{' [INST] '+system_message+'\n\n'+message.content+' [/INST]'}}"                          \
        "{%else%}{{' [INST] '+message.content+' [/INST]'}}{%endif%}"                               \
        "{%elifmessage.role=='assistant'%}{{' '+message.content+eos_token}}{%else%}"
#define MISTRAL_LAST(open, answer)                                                                 \
    SYSTEM_FIRST, "{{bos_token}}{%formessageinloop_messages%}{%ifmessage.role=='user'%}",          \
        "{%ifloop.lastandsystem_messageisdefined%}"                                                \
        "{{'" open "'+system_message+'\n\n'+message.content+'[/INST]'}}"                           \
        "{%else%}{{'" open "'+message.content+'[/INST]'}}{%endif%}",                               \
        "{%elifmessage.role=='assistant'%}{{" answer "+eos_token}}"
#define MISTRAL_V3   MISTRAL_LAST("[INST] ", "' '+message.content|trim")
#define MINISTRAL    MISTRAL_LAST("[INST]", "' '+message.content|trim")
#define MISTRAL_NEMO MISTRAL_LAST("[INST]", "message.content")
#define QWEN_SYSTEM                                                                                \
    "{%else%}{%ifmessages[0].role=='system'%}"                                                     \
    "{{'<|im_start|>system\n'+messages[0].content+'<|im_end|>\n'}}"
#define QWEN2                                                                                      \
    QWEN_SYSTEM "{%else%}{{'<|im_start|>system\n" HOLE "<|im_end|>\n'}}{%endif%}{%endif%}"         \
                "{%formessageinmessages%}",                                                        \
        "{%if(message.role=='user')or(message.role=='system'andnotloop.first)"                     \
        "or(message.role=='assistant'andnotmessage.tool_calls)%}" CHATML_TURN,                     \
        "{%endfor%}" CHATML_GEN
#define QWEN3_START QWEN_SYSTEM "{%endif%}{%endif%}"
#define QWEN3_ROLES "{%if(message.role=='user')or(message.role=='system'andnotloop.first)%}"
#define QWEN3_END                                                                                  \
    "{%ifloop.index0>ns.last_query_index%}{%ifloop.lastor(notloop.lastandreasoning_content)%}"     \
    "{{'<|im_start|>'+message.role+'\n<think>\n'+reasoning_content.strip('\n')+"                   \
    "'\n</think>\n\n'+content.lstrip('\n')}}"                                                      \
    "{%else%}{{'<|im_start|>'+message.role+'\n'+content}}{%endif%}"                                \
    "{%else%}{{'<|im_start|>'+message.role+'\n'+content}}{%endif%}",                               \
        "{%endfor%}{%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}"                       \
        "{%ifenable_thinkingisdefinedandenable_thinkingisfalse%}"
#define QWEN3                                                                                      \
    QWEN3_START,                                                                                   \
        "{%formessageinmessages%}" QWEN3_ROLES CHATML_TURN "{%elifmessage.role=='assistant'%}"     \
        "{%setcontent=message.content%}{%setreasoning_content=''%}",                               \
        QWEN3_END
#define QWEN3_LATER                                                                                \
    QWEN3_START,                                                                                   \
        "{%formessageinmessages%}{%ifmessage.contentisstring%}{%setcontent=message.content%}"      \
        "{%else%}{%setcontent=''%}{%endif%}" QWEN3_ROLES                                           \
        "{{'<|im_start|>'+message.role+'\n'+content+'<|im_end|>\n'}}"                              \
        "{%elifmessage.role=='assistant'%}{%setreasoning_content=''%}",                            \
        QWEN3_END
#define LFM2                                                                                       \
    "{{bos_token}}",                                                                               \
        "{%setns=namespace(system_prompt='')%}{%ifmessages[0].role=='system'%}"                    \
        "{%setns.system_prompt=messages[0].content%}{%setmessages=messages[1:]%}{%endif%}",        \
        "{%ifns.system_prompt%}{{'<|im_start|>system\n'+ns.system_prompt+'<|im_end|>\n'}}"         \
        "{%endif%}{%formessageinmessages%}{{'<|im_start|>'+message.role+'\n'}}"                    \
        "{%setcontent=message.content",                                                            \
        "{{content+'<|im_end|>\n'}}{%endfor%}" CHATML_GEN

typedef struct known {
    kvf__chat_kind kind;
    kvf__chat_form form;
    bool always_prompt;
    const char *marker; /* opens a turn; NULL: the first part is the whole template */
    int markers;        /* how often it occurs */
    const char *part[7];
} known;

static const known KNOWN[] = {
    {KVF__CHAT_CHATML, KVF__FORM_PLAIN, false, NULL, 0, {SMOLLM}},
    {KVF__CHAT_CHATML, KVF__FORM_PLAIN, false, NULL, 0, {CHATML}},
    {KVF__CHAT_LLAMA3, KVF__FORM_PLAIN, true, NULL, 0, {LLAMA3_ALWAYS}},
    {KVF__CHAT_LLAMA3, KVF__FORM_PLAIN, false, NULL, 0, {LLAMA3_ASKED}},
    {KVF__CHAT_LLAMA3, KVF__FORM_LLAMA31, false, "<|start_header_id|>", 6, {LLAMA31}},
    {KVF__CHAT_LLAMA3, KVF__FORM_LLAMA31, false, "<|start_header_id|>", 7, {LLAMA31}},
    {KVF__CHAT_GEMMA, KVF__FORM_GEMMA2, false, NULL, 0, {GEMMA2}},
    {KVF__CHAT_GEMMA, KVF__FORM_GEMMA3, false, "<start_of_turn>", 2, {GEMMA3}},
    {KVF__CHAT_PHI3, KVF__FORM_PLAIN, false, NULL, 0, {PHI3}},
    {KVF__CHAT_PHI3, KVF__FORM_PHI35, false, NULL, 0, {PHI35}},
    {KVF__CHAT_PHI4, KVF__FORM_PLAIN, false, NULL, 0, {PHI4}},
    {KVF__CHAT_PHI4_MINI, KVF__FORM_PLAIN, false, NULL, 0, {PHI4_MINI}},
    {KVF__CHAT_OLMO2, KVF__FORM_PLAIN, false, NULL, 0, {OLMO2}},
    {KVF__CHAT_OLMO2, KVF__FORM_TULU, false, NULL, 0, {TULU}},
    {KVF__CHAT_MISTRAL, KVF__FORM_MISTRAL_OLD, false, NULL, 0, {MISTRAL_OLD}},
    {KVF__CHAT_MISTRAL, KVF__FORM_MISTRAL_V1, false, "[INST]", 2, {MISTRAL_V1}},
    {KVF__CHAT_MISTRAL, KVF__FORM_MISTRAL_V3, false, "[INST]", 2, {MISTRAL_V3}},
    {KVF__CHAT_MISTRAL, KVF__FORM_MINISTRAL, false, "[INST]", 2, {MINISTRAL}},
    {KVF__CHAT_MISTRAL, KVF__FORM_MISTRAL_NEMO, false, "[INST]", 2, {MISTRAL_NEMO}},
    {KVF__CHAT_CHATML, KVF__FORM_QWEN2, false, "<|im_start|>", 7, {QWEN2}},
    {KVF__CHAT_CHATML, KVF__FORM_QWEN3, false, "<|im_start|>", 8, {QWEN3}},
    {KVF__CHAT_CHATML, KVF__FORM_QWEN3, false, "<|im_start|>", 8, {QWEN3_LATER}},
    {KVF__CHAT_CHATML, KVF__FORM_LFM2, false, "<|im_start|>", 3, {LFM2}},
};

/* ---- comparing ------------------------------------------------------------------------------- */

/* Returns the place where text matches the part, which may have one hole; NULL: none. *after: end
 * of the match. */
static const char *match_at(const char *text, const char *part, const char **after,
                            const char **hole, size_t *hole_n)
{
    const char *split = strstr(part, HOLE);
    size_t head = split ? (size_t)(split - part) : strlen(part);

    if (strncmp(text, part, head) != 0) return NULL;
    *after = text + head;
    if (!split) return text;
    const char *close = strchr(*after, '\''); /* the hole is inside of one literal */
    const char *tail = strstr(*after, split + 1);
    if (!tail || !close || tail > close) return NULL;
    *hole = *after;
    *hole_n = (size_t)(tail - *after);
    *after = tail + strlen(split + 1);
    return text;
}

static int count(const char *text, const char *marker)
{
    int n = 0;
    for (const char *p = strstr(text, marker); p; p = strstr(p + 1, marker))
        n++;
    return n;
}

static bool matches(const known *k, const char *text, const char **hole, size_t *hole_n)
{
    const char *after = text;

    if (!k->marker) {
        if (strncmp(text, GEN_DEFINED, sizeof GEN_DEFINED - 1) == 0) text += sizeof GEN_DEFINED - 1;
        return match_at(text, k->part[0], &after, hole, hole_n) && *after == '\0';
    }
    for (size_t i = 0; i < sizeof k->part / sizeof *k->part && k->part[i]; i++) {
        const char *p = after;
        while (*p && !match_at(p, k->part[i], &after, hole, hole_n))
            p++;
        if (!*p) return false;
    }
    /* LFM2.5 has all parts of LFM2, and removes reasoning between them. */
    if (k->form != KVF__FORM_QWEN3 && strstr(text, "</think>")) return false;
    return count(text, k->marker) == k->markers;
}

kvf_status kvf__chat_recognise(kvf_ctx *ctx, const char *source, kvf__chat *out)
{
    lexer lx = {.ctx = ctx, .s = source, .end = source + strlen(source)};
    kvf_status st = canonical(&lx);

    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN && !st; i++) {
        const char *hole = NULL;
        size_t hole_n = 0;
        if (!matches(&KNOWN[i], lx.out.data, &hole, &hole_n)) continue;
        if (hole) st = kvf__strndup(ctx, hole, hole_n, &out->system);
        out->kind = KNOWN[i].kind;
        out->form = (int)KNOWN[i].form;
        out->always_prompt = KNOWN[i].always_prompt;
        break;
    }
    kvf__buf_done(&lx.out);
    return st;
}
