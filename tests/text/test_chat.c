/* Chat templates: recognition, printed text, and the tokens with loss. Ids are compared with
 * transformers' if the shared data is available. */
#include "tok_check.h"

/* Short published templates are complete. Of the long ones with tool branches, only the parts for
 * plain chat are kept, with as many other turns as in the original. */
static const char SMOLLM2[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\nYou are a "
    "helper<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
static const char CHATML[] = "{% if not add_generation_prompt is defined %}{% set "
                             "add_generation_prompt = false %}{% endif %}\n"
                             "{%- for message in messages %}\n    {{- \"<|im_start|>\" + "
                             "message.role + '\\n' + message[\"content\"] + '<|im_end|>\\n' }}\n"
                             "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- "
                             "'<|im_start|>assistant\\n' -}}\n{%- endif %}\n";
static const char LLAMA3[] = "{% set loop_messages = messages %}{% for message in loop_messages "
                             "%}{% set content = '<|start_header_id|>' + "
                             "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim "
                             "+ '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set "
                             "content = bos_token + content %}{% endif %}{{ content }}{% endfor "
                             "%}{% if add_generation_prompt %}{{ "
                             "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
static const char LLAMA3_ALWAYS[] = "{% set loop_messages = messages %}{% for message in "
                                    "loop_messages %}{% set content = '<|start_header_id|>' + "
                                    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] "
                                    "| trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set "
                                    "content = bos_token + content %}{% endif %}{{ content }}{% "
                                    "endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>"
                                    "\n\n' }}";
static const char MISTRAL_OLD[] =
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 "
    "% 2 == 0) %}{{ "
    "raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% "
    "endif %}{% if "
    "message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif "
    "message['role'] == 'assistant' "
    "%}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant "
    "roles are supported!') }}"
    "{% endif %}{% endfor %}";
#define MISTRAL_SYSTEM                                                                             \
    "{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = "                     \
    "messages[0]['content'] %}\n"                                                                  \
    "    {%- set loop_messages = messages[1:] %}\n{%- else %}\n    {%- set loop_messages = "       \
    "messages %}\n{%- endif %}\n\n"
static const char MISTRAL_V1[] = MISTRAL_SYSTEM
    "{{- bos_token }}\n{%- for message in loop_messages %}\n    {%- if (message['role'] == 'user') "
    "!= (loop.index0 % 2 == 0) %}\n"
    "        {{- raise_exception('alternate') }}\n    {%- endif %}\n    {%- if message['role'] == "
    "'user' %}\n"
    "        {%- if loop.first and system_message is defined %}\n"
    "            {{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}\n "
    "       {%- else %}\n"
    "            {{- ' [INST] ' + message['content'] + ' [/INST]' }}\n        {%- endif %}\n"
    "    {%- elif message['role'] == 'assistant' %}\n        {{- ' ' + message['content'] + "
    "eos_token}}\n    {%- else %}\n"
    "        {{- raise_exception('roles') }}\n    {%- endif %}\n{%- endfor %}\n";
static const char MISTRAL_V3[] = MISTRAL_SYSTEM
    "{{- bos_token }}\n{%- for message in loop_messages %}\n    {%- if message[\"role\"] == "
    "\"user\" %}\n"
    "        {%- if loop.last and system_message is defined %}\n"
    "            {{- \"[INST] \" + system_message + \"\\n\\n\" + message[\"content\"] + "
    "\"[/INST]\" }}\n        {%- else %}\n"
    "            {{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}\n        {%- endif %}\n"
    "    {%- elif message[\"role\"] == \"assistant\" %}\n        {{- \" \" + "
    "message[\"content\"]|trim + eos_token}}\n"
    "    {%- endif %}\n{%- endfor %}\n";
#define QWEN_TOOLS "{%- if tools %}{{- '<|im_start|>system\\n' }}{{- tools }}"
#define QWEN_TOOL_TURNS                                                                            \
    "{%- elif message.role == \"assistant\" %}{{- '<|im_start|>' + message.role }}{%- elif "       \
    "message.role == \"tool\" %}"                                                                  \
    "{{- '<|im_start|>user' }}{%- endif %}"
static const char QWEN25[] = QWEN_TOOLS
    "{%- else %}\n    {%- if messages[0]['role'] == 'system' %}\n"
    "        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}\n    {%- "
    "else %}\n"
    "        {{- '<|im_start|>system\\nYou are Q.<|im_end|>\\n' }}\n    {%- endif %}\n{%- endif "
    "%}\n"
    "{%- for message in messages %}\n    {%- if (message.role == \"user\") or (message.role == "
    "\"system\" and not loop.first) or "
    "(message.role == \"assistant\" and not message.tool_calls) %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' "
    "}}\n" QWEN_TOOL_TURNS "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- "
    "'<|im_start|>assistant\\n' }}\n{%- endif %}\n";

typedef struct talk {
    const char *template, *name; /* template: NULL for none; name: as kvf__chat_init takes it */
    bool prompt;
    kvf__message m[6];
    const char *text, *loss; /* the printed text, and its part with loss */
} talk;

static const talk TALKS[] = {
    {SMOLLM2,
     "auto",
     false,
     {{"user", "hi", 0, false}},
     "<|im_start|>system\nYou are a helper<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n",
     ""},
    {SMOLLM2,
     "auto",
     true,
     {{"system", "s", 0, false}, {"user", "hi", 0, false}},
     "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
     ""},
    {SMOLLM2,
     "auto",
     false,
     {{"system", "s", 0, false},
      {"user", "hi", 0, false},
      {"assistant", "yo", 0, false},
      {"user", "x", 0, false},
      {"assistant", " z", 0, false}},
     "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|"
     "im_end|>\n<|im_start|>user\nx<|im_end|>\n"
     "<|im_start|>assistant\n z<|im_end|>\n",
     "yo<|im_end|> z<|im_end|>"},
    {SMOLLM2,
     "chatml",
     false,
     {{"user", "a", 0, false}},
     "<|im_start|>system\nYou are a helper<|im_end|>\n<|im_start|>user\na<|im_end|>\n",
     ""},
    {NULL,
     "chatml",
     true,
     {{"tool", "a", 0, false}},
     "<|im_start|>tool\na<|im_end|>\n<|im_start|>assistant\n",
     ""},
    {CHATML,
     "auto",
     true,
     {{"user", "a", 0, false}, {"assistant", "b", 0, false}},
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>assistant\n",
     "b<|im_end|>"},
    {LLAMA3,
     "auto",
     false,
     {{"user", " a\n", 0, false}, {"assistant", "\tb\xC2\xA0", 0, false}},
     "<s><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant<|end_"
     "header_id|>\n\nb<|eot_id|>",
     "b<|eot_id|>"},
    {LLAMA3,
     "auto",
     true,
     {{"user", "a", 0, false}},
     "<s><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant<|end_"
     "header_id|>\n\n",
     ""},
    {LLAMA3_ALWAYS,
     "auto",
     false,
     {{"user", "a", 0, false}},
     "<s><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant<|end_"
     "header_id|>\n\n",
     ""},
    {SMOLLM2,
     "llama3",
     false,
     {{"user", "", 0, false}},
     "<s><|start_header_id|>user<|end_header_id|>\n\n<|eot_id|>",
     ""},
    {MISTRAL_OLD,
     "auto",
     true,
     {{"user", "a", 0, false}, {"assistant", "b", 0, false}, {"user", "c", 0, false}},
     "<s>[INST] a [/INST]b</s>[INST] c [/INST]",
     "b</s>"},
    {MISTRAL_V1,
     "auto",
     false,
     {{"system", "s", 0, false},
      {"user", "a", 0, false},
      {"assistant", "b ", 0, false},
      {"user", "c", 0, false}},
     "<s> [INST] s\n\na [/INST] b </s> [INST] c [/INST]",
     " b </s>"},
    {MISTRAL_V3,
     "auto",
     false,
     {{"system", "s", 0, false},
      {"user", "a", 0, false},
      {"assistant", "b ", 0, false},
      {"user", "c", 0, false}},
     "<s>[INST] a[/INST] b</s>[INST] s\n\nc[/INST]",
     " b</s>"},
    {MISTRAL_V3,
     "auto",
     false,
     {{"system", "s", 0, false}, {"user", "a", 0, false}, {"assistant", "b", 0, false}},
     "<s>[INST] a[/INST] b</s>",
     " b</s>"},
    {NULL,
     "mistral",
     false,
     {{"user", "a", 0, false}, {"assistant", "b", 0, false}},
     "<s> [INST] a [/INST] b</s>",
     " b</s>"},
    {QWEN25,
     "auto",
     true,
     {{"user", "a", 0, false}, {"assistant", "b", 0, false}, {"system", "t", 0, false}},
     "<|im_start|>system\nYou are "
     "Q.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>"
     "system\nt<|im_end|>\n<|im_start|>assistant\n",
     "b<|im_end|>"},
    {"{{ what }}",
     "granite",
     true,
     {{"system", "s", 0, false}, {"user", "a", 0, false}, {"assistant", "b", 0, false}},
     "<|start_of_role|>system<|end_of_role|>s<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>"
     "a<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>b<|end_of_text|>\n"
     "<|start_of_role|>assistant<|end_of_role|>",
     "b<|end_of_text|>"},
};

/* A byte-level tokenizer with the marks of all templates as special tokens, and this template. As
 * in Phi-3, its marks take the white space after them. */
static kvf__tokenizer *open_with(kvf_ctx *ctx, bool phi3, const char *template)
{
    static const char *const marks[] = {
        "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
        "<s>",          "</s>"};
    static const char *const phi3_marks[] = {"<|user|>", "<|assistant|>", "<|system|>", "<|end|>"};
    kvf_json *json = golden(ctx), *source = kvf_json_new_str(template ? template : "");
    char *model = kvf_json_text(kvf_json_at(kvf_json_get(json, "models"), 0), 0),
         *quoted = kvf_json_text(source, 0);
    kvf__buf text = {0}, config = {0};
    kvf__tokenizer *t = NULL;

    ok(ctx,
       kvf__buf_printf(
           ctx, &text,
           "{\"model\":%s,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
           "\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":[",
           model));
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        ok(ctx, kvf__buf_printf(ctx, &text, "%s{\"id\":%zu,\"special\":true,\"content\":\"%s\"}",
                                i ? "," : "", 1000 + i, marks[i]));
    for (size_t i = 0; phi3 && i < sizeof phi3_marks / sizeof *phi3_marks; i++)
        ok(ctx, kvf__buf_printf(ctx, &text,
                                ",{\"id\":%zu,\"special\":true,\"rstrip\":true,\"content\":\"%s\"}",
                                1100 + i, phi3_marks[i]));
    ok(ctx, kvf__buf_printf(ctx, &text, "]}"));
    ok(ctx, kvf__buf_printf(ctx, &config, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\""));
    ok(ctx, template ? kvf__buf_printf(ctx, &config, ",\"chat_template\":%s}", quoted)
                     : kvf__buf_printf(ctx, &config, "}"));
    ok(ctx, tokenizer_from_json(ctx, "chat", text.data, text.n, config.data, config.n, &t));
    kvf__buf_done(&text);
    kvf__buf_done(&config);
    kvf_json_text_free(model);
    kvf_json_text_free(quoted);
    kvf_json_free(source);
    kvf_json_free(json);
    return t;
}

static size_t count(const kvf__message *m)
{
    size_t n = 0;
    while (n < 6 && m[n].role)
        n++;
    return n;
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(prints_what_the_template_does)
{
    const talk *row = &TALKS[_i];
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, row->template);
    kvf__chat chat = {0};
    kvf__ids ids = {0}, loss = {0}, again = {0}, taught = {0};

    ok(ctx, kvf__chat_init(ctx, t, row->name, &chat));
    ok(ctx, kvf__chat_encode(ctx, t, &chat, row->m, count(row->m), row->prompt, &ids, &loss));
    check_decode(ctx, t, ids.data, ids.n, false, row->text, strlen(row->text));
    ck_assert_uint_eq(loss.n, ids.n);
    for (size_t i = 0; i < ids.n; i++)
        if (loss.data[i]) ok(ctx, kvf__ids_add(ctx, &taught, ids.data[i]));
    check_decode(ctx, t, taught.data, taught.n, false, row->loss, strlen(row->loss));
    ok(ctx, kvf__chat_encode(ctx, t, &chat, row->m, count(row->m), row->prompt, &again, NULL));
    ck_assert_uint_eq(again.n, ids.n);
    ck_assert_mem_eq(again.data, ids.data, ids.n * sizeof *ids.data);
    kvf__ids_done(&ids);
    kvf__ids_done(&loss);
    kvf__ids_done(&again);
    kvf__ids_done(&taught);
    kvf__chat_done(&chat);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* U+0000 is content: every template also prints the text after it. */
START_TEST(nul_is_content)
{
    static const char *const templates[] = {SMOLLM2, LLAMA3, MISTRAL_V1, MISTRAL_V3, QWEN25};
    static const kvf__message m[] = {{"user", "a\0b", 3, false}, {"assistant", "\0c\0", 3, false}};
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, templates[_i]);
    kvf__chat chat = {0};
    kvf__ids ids = {0};
    kvf__buf text = {0};

    ok(ctx, kvf__chat_init(ctx, t, "auto", &chat));
    ok(ctx, kvf__chat_encode(ctx, t, &chat, m, 2, false, &ids, NULL));
    ok(ctx, kvf__decode(ctx, t, ids.data, ids.n, false, &text));
    ck_assert_ptr_nonnull(memmem(text.data, text.n, "a\0b", 3));
    ck_assert_ptr_nonnull(memmem(text.data, text.n, "\0c\0", 3));
    kvf__buf_done(&text);
    kvf__ids_done(&ids);
    kvf__chat_done(&chat);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* A conversation begins with its own prompt: generation uses the same prompt as training. */
START_TEST(prompt_is_a_prefix)
{
    static const char *const templates[] = {SMOLLM2, LLAMA3, MISTRAL_V1, QWEN25};
    static const kvf__message m[] = {{"user", "one \n", 0, false},
                                     {"assistant", "\n two", 0, false}};
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, templates[_i]);
    kvf__chat chat = {0};
    kvf__ids prompt = {0}, whole = {0};

    ok(ctx, kvf__chat_init(ctx, t, "auto", &chat));
    ok(ctx, kvf__chat_encode(ctx, t, &chat, m, 1, true, &prompt, NULL));
    ok(ctx, kvf__chat_encode(ctx, t, &chat, m, 2, false, &whole, NULL));
    ck_assert_uint_lt(prompt.n, whole.n);
    ck_assert_mem_eq(prompt.data, whole.data, prompt.n * sizeof *prompt.data);
    kvf__ids_done(&prompt);
    kvf__ids_done(&whole);
    kvf__chat_done(&chat);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* Text after a prefix that replaces the system turn. Both together are the whole chat, and the
 * default turn is in neither. */
START_TEST(system_turn_apart)
{
    static const char *const templates[] = {SMOLLM2, CHATML, LLAMA3, QWEN25};
    static const kvf__message m[] = {{"system", "Be brief.", 0, false},
                                     {"user", "one", 0, false},
                                     {"assistant", "two", 0, false}};
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, templates[_i]);
    kvf__chat chat = {0}, apart = {0};
    kvf__ids parts = {0}, whole = {0};

    ok(ctx, kvf__chat_init(ctx, t, "auto", &chat));
    ok(ctx, kvf__chat_init(ctx, t, "no-system", &apart));
    ok(ctx, kvf__chat_encode(ctx, t, &chat, m, 3, false, &whole, NULL));
    ok(ctx, kvf__chat_encode(ctx, t, &chat, m, 1, false, &parts, NULL));
    ok(ctx, kvf__chat_encode(ctx, t, &apart, m + 1, 2, false, &parts, NULL));
    ck_assert_uint_eq(parts.n, whole.n);
    ck_assert_mem_eq(parts.data, whole.data, whole.n * sizeof *whole.data);
    ck_assert_int_eq(kvf__chat_encode(ctx, t, &apart, m, 3, false, &parts, NULL), KVF_EDATA);
    ck_assert_pstr_eq(
        kvf_ctx_error(ctx),
        "message 1 is a system turn, but the prefix already replaces the system turn");
    ck_assert_uint_eq(parts.n, whole.n);
    kvf__ids_done(&parts);
    kvf__ids_done(&whole);
    kvf__chat_done(&chat);
    kvf__chat_done(&apart);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

START_TEST(no_system_turn_to_leave_out)
{
    static const char *const templates[] = {NULL, MISTRAL_V1, "{{ what }}"};
    static const char *const says[] = {"has no chat template", "has no separate system turn",
                                       "none that is known"};
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, templates[_i]);
    kvf__chat chat = {0};

    ck_assert_int_eq(kvf__chat_init(ctx, t, "no-system", &chat), KVF_EUNSUPPORTED);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), says[_i]) != NULL, "%s", kvf_ctx_error(ctx));
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

static const struct {
    const char *template, *name;
    kvf__chat_kind kind;
    const char *system;
} KINDS[] = {
    {NULL, "auto", KVF__CHAT_NONE, NULL},
    {NULL, "none", KVF__CHAT_NONE, NULL},
    {"{{ what }}", "none", KVF__CHAT_NONE, NULL},
    {"{{ what }}", "chatml", KVF__CHAT_CHATML, NULL},
    {SMOLLM2, "none", KVF__CHAT_NONE, NULL},
    {SMOLLM2, "auto", KVF__CHAT_CHATML, "You are a helper"},
    {SMOLLM2, "mistral", KVF__CHAT_MISTRAL, NULL},
    {QWEN25, "auto", KVF__CHAT_CHATML, "You are Q."},
    {LLAMA3, "llama3", KVF__CHAT_LLAMA3, NULL},
    {SMOLLM2, "gemma", KVF__CHAT_GEMMA, NULL},
    {NULL, "phi4-mini", KVF__CHAT_PHI4_MINI, NULL},
    {"{{ what }}", "rendered", KVF__CHAT_RENDERED, NULL},
};

START_TEST(kinds)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, KINDS[_i].template);
    kvf__chat chat = {0};

    ok(ctx, kvf__chat_init(ctx, t, KINDS[_i].name, &chat));
    ck_assert_int_eq(chat.kind, KINDS[_i].kind);
    ck_assert_pstr_eq(chat.system, KINDS[_i].system);
    ck_assert(kvf__chat_names(KINDS[_i].name, chat.kind) == (strcmp(KINDS[_i].name, "auto") != 0));
    kvf__chat_done(&chat);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

/* Nearly the templates above: a printed line break, other roles, other spaces, one more turn, a
 * date. */
static const char *const STRANGERS[] = {
    "",
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}",
    "{% for message in messages %}\n{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' ' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}",
    "{{- bos_token }}\n{%- if custom_tools is defined %}\n    {%- set tools = custom_tools %}\n{%- "
    "endif %}",
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\n' + x + '<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "{{- bos_token -}}{%- set ns = namespace(system_prompt='') -%}" /* LFM2.5 */
    "{%- if messages[0]['role'] == 'system' -%}{%- set ns.system_prompt = messages[0]['content'] "
    "-%}"
    "{%- set messages = messages[1:] -%}{%- endif -%}{%- if ns.system_prompt -%}"
    "{{- '<|im_start|>system\n' + ns.system_prompt + '<|im_end|>\n' -}}{%- endif -%}"
    "{%- for message in messages -%}{{- '<|im_start|>' + message['role'] + '\n' -}}"
    "{%- set content = message['content'] -%}{%- set content = content.split('</think>')[-1] -%}"
    "{{- content + '<|im_end|>\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}",
    "{% for",
    "{{ '",
    "{# x",
    "{{ a['",
    "{%- -",
    "{{-",
    "{% if a -%}  ",
    "{{ \"\\",
    "{{ x['y' ",
};

START_TEST(strangers_are_refused)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, STRANGERS[_i]);
    kvf__chat chat = {0};
    size_t line = strcspn(STRANGERS[_i], "\n");
    char first[161];

    snprintf(first, sizeof first, "%.*s", (int)line, STRANGERS[_i]);
    ck_assert_int_eq(kvf__chat_init(ctx, t, "auto", &chat), KVF_EUNSUPPORTED);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), first) != NULL, "%s", kvf_ctx_error(ctx));
    ck_assert_ptr_null(strchr(kvf_ctx_error(ctx), '\n'));
    ck_assert_int_eq(chat.kind, KVF__CHAT_NONE);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

static const struct {
    const char *template;
    kvf__message m[3];
    kvf_status status;
    const char *says;
} BAD_TALKS[] = {
    {NULL, {{"user", "a", 0, false}}, KVF_EUNSUPPORTED, "no chat template"},
    {SMOLLM2, {{NULL, NULL, 0, false}}, KVF_EDATA, "without messages"},
    {QWEN25,
     {{"user", "a", 0, false}, {"tool", "b", 0, false}},
     KVF_EDATA,
     "message 2 has role \"tool\""},
    {MISTRAL_OLD, {{"system", "a", 0, false}}, KVF_EDATA, "message 1"},
    {MISTRAL_V1, {{"user", "a", 0, false}, {"user", "b", 0, false}}, KVF_EDATA, "message 2"},
    {MISTRAL_V3, {{"assistant", "a", 0, false}}, KVF_EDATA, "alternate"},
};

START_TEST(bad_conversations)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, BAD_TALKS[_i].template);
    kvf__chat chat = {0};
    kvf__ids ids = {0}, loss = {0};

    ok(ctx, kvf__chat_init(ctx, t, "auto", &chat));
    ok(ctx, kvf__ids_add(ctx, &ids, 7));
    ck_assert_int_eq(kvf__chat_encode(ctx, t, &chat, BAD_TALKS[_i].m,
                                      BAD_TALKS[_i].m[0].role ? count(BAD_TALKS[_i].m) : 0, false,
                                      &ids, &loss),
                     BAD_TALKS[_i].status);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), BAD_TALKS[_i].says) != NULL, "%s", kvf_ctx_error(ctx));
    check_ids("untouched", &ids, "7");
    ck_assert_uint_eq(loss.n, 0);
    kvf__ids_done(&ids);
    kvf__ids_done(&loss);
    kvf__chat_done(&chat);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* Unknown names, and dates for templates that print none. */
START_TEST(bad_names)
{
    static const char *const names[] = {"alpaca", "auto:26 Jul 2024", "chatml:", "rendered:x", ""};
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, SMOLLM2);
    kvf__chat chat = {0};

    ck_assert_int_eq(kvf__chat_init(ctx, t, names[_i], &chat), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), names[_i]));
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

START_TEST(without_memory)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_with(ctx, false, SMOLLM2);
    kvf__chat chat = {0};
    kvf__ids ids = {0}, loss = {0};
    kvf_status st;
    int64_t n = 0, tries;

    do {
        kvf__ctx_fail_allocation(ctx, n++);
        st = kvf__chat_init(ctx, t, "auto", &chat);
        ck_assert(st == KVF_OK || (st == KVF_ENOMEM && !chat.system));
    } while (st);
    tries = n;
    do {
        kvf__ctx_fail_allocation(ctx, n++ - tries);
        st = kvf__chat_encode(ctx, t, &chat, TALKS[2].m, count(TALKS[2].m), true, &ids, &loss);
        ck_assert(st == KVF_OK || (st == KVF_ENOMEM && ids.n == 0 && loss.n == 0));
    } while (st);
    ck_assert_int_gt(tries, 3);
    ck_assert_int_gt(n - tries, 5);
    kvf__ctx_fail_allocation(ctx, -1);
    kvf__ids_done(&ids);
    kvf__ids_done(&loss);
    kvf__chat_done(&chat);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- golden ---------------------------------------------------------------------------------- */

static size_t read_messages(const kvf_json *list, kvf__message m[8])
{
    const size_t n = kvf_json_size(list);
    ck_assert_uint_le(n, 8);
    for (size_t i = 0; i < n; i++)
        m[i] = (kvf__message){.role = field(kvf_json_at(list, i), "role"),
                              .content = field(kvf_json_at(list, i), "content")};
    return n;
}

/* The ids equal those of the text printed by transformers. */
static void check_printed(kvf_ctx *ctx, const kvf__tokenizer *t, const kvf_json *row)
{
    const char *date = kvf_json_str(kvf_json_get(row, "date"), NULL),
               *text = kvf_json_str(kvf_json_get(row, "text"), NULL);
    char name[40];
    kvf__message m[8];
    const size_t n = read_messages(kvf_json_get(row, "messages"), m);
    kvf__chat chat = {0};
    kvf__ids ids = {0}, want = {0};

    snprintf(name, sizeof name, "auto%s%s", date ? ":" : "", date ? date : "");
    kvf_status st = kvf__chat_init(ctx, t, name, &chat);
    if (date && st == KVF_EUSAGE) { /* it prints none */
        ck_assert_ptr_null(strstr(text, date));
        ok(ctx, kvf__chat_init(ctx, t, "auto", &chat));
    } else {
        ok(ctx, st);
        ck_assert(!date || strstr(text, date));
    }
    st = kvf__chat_encode(ctx, t, &chat, m, n, kvf_json_bool(kvf_json_get(row, "prompt"), false),
                          &ids, NULL);
    ck_assert_int_eq(st, text ? KVF_OK : KVF_EDATA);
    if (text) ok(ctx, kvf__encode(ctx, t, text, strlen(text), false, &want));
    ck_assert_uint_eq(ids.n, want.n);
    ck_assert(!want.n || !memcmp(ids.data, want.data, want.n * sizeof *want.data));
    kvf__ids_done(&ids);
    kvf__ids_done(&want);
    kvf__chat_done(&chat);
}

START_TEST(prints_what_transformers_does)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *json = load_json(ctx, ck_source("tests/golden/chat_templates.json"));
    size_t rows = 0;

    for (size_t i = 0; i < kvf_json_size(json); i++) {
        const kvf_json *row = kvf_json_at(json, i), *talks = kvf_json_get(row, "talks");
        kvf__tokenizer *t = open_with(ctx, _i == 1, field(row, "template"));
        for (size_t k = 0; k < kvf_json_size(talks); k++, rows++)
            check_printed(ctx, t, kvf_json_at(talks, k));
        kvf__tokenizer_free(t);
    }
    ck_assert_uint_eq(rows, 78);
    kvf_json_free(json);
    kvf_ctx_free(ctx);
}
END_TEST

static void check_row(kvf_ctx *ctx, const kvf__tokenizer *t, const kvf__chat *chat,
                      const kvf_json *row)
{
    bool prompt = kvf_json_bool(kvf_json_get(row, "add_generation_prompt"), false), taught = false;
    kvf__message m[8];
    size_t n = read_messages(kvf_json_get(row, "messages"), m), sum = 0;
    kvf__ids ids = {0}, loss = {0};

    for (size_t i = 0; i < n; i++)
        taught = taught || strcmp(m[i].role, "assistant") == 0;
    ok(ctx, kvf__chat_encode(ctx, t, chat, m, n, prompt, &ids, &loss));
    check_ids(m[0].content, &ids, field(row, "ids"));
    ck_assert_uint_eq(loss.n, ids.n);
    for (size_t i = 0; i < loss.n; i++)
        sum += (size_t)loss.data[i];
    ck_assert_int_eq(sum > 0, taught);
    kvf__ids_done(&ids);
    kvf__ids_done(&loss);
}

START_TEST(equals_transformers)
{
    ck_need(ck_shared("data/tokenizers"), "the shared data are not there");
    static const char *const names[] = {"llama3", "qwen3"};
    kvf_ctx *ctx = new_ctx();
    kvf_json *json = load_json(ctx, ck_source("tests/golden/chat_shared.json"));
    const kvf_json *cases = kvf_json_get(json, "cases");
    char path[100];
    const char *dir;
    kvf__tokenizer *t = NULL;
    kvf__chat chat = {0};
    size_t rows = 0;

    snprintf(path, sizeof path, "data/tokenizers/%s", names[_i]);
    dir = ck_shared(path);
    if (dir) {
        ok(ctx, kvf__tokenizer_from_dir(ctx, dir, &t));
        ok(ctx, kvf__chat_init(ctx, t, "auto", &chat));
        for (size_t i = 0; i < kvf_json_size(cases); i++) {
            const kvf_json *row = kvf_json_at(cases, i);
            if (strcmp(field(row, "tokenizer"), names[_i]) != 0) continue;
            check_row(ctx, t, &chat, row);
            rows++;
        }
        ck_assert_uint_ge(rows, 20);
    }
    kvf__chat_done(&chat);
    kvf__tokenizer_free(t);
    kvf_json_free(json);
    kvf_ctx_free(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors"),
          *shared = tcase_create("golden");

    tcase_add_loop_test(core, prints_what_the_template_does, 0, ROWS(TALKS));
    tcase_add_loop_test(core, prints_what_transformers_does, 0, 2);
    tcase_add_loop_test(core, nul_is_content, 0, 5);
    tcase_add_loop_test(core, prompt_is_a_prefix, 0, 4);
    tcase_add_loop_test(core, system_turn_apart, 0, 4);
    tcase_add_loop_test(core, no_system_turn_to_leave_out, 0, 3);
    tcase_add_loop_test(core, kinds, 0, ROWS(KINDS));
    tcase_add_loop_test(errors, strangers_are_refused, 0, ROWS(STRANGERS));
    tcase_add_loop_test(errors, bad_conversations, 0, ROWS(BAD_TALKS));
    tcase_add_loop_test(errors, bad_names, 0, 5);
    tcase_add_test(errors, without_memory);
    tcase_set_timeout(shared, 60);
    tcase_add_loop_test(shared, equals_transformers, 0, 2);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    suite_add_tcase(suite, shared);
    return ck_main(suite);
}
