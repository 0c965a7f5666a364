/* Parses and checks the body of a request. Independent of HTTP, so that it can be tested with
 * arbitrary input. Fields are rows of a table. An unknown field is refused by name, and so is one
 * that requests an unsupported feature (tools), so that no client assumes it took effect. The form
 * is that of OpenAI's API reference, completions and chat completions. */
#include "request.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_STOPS = 16,
    MOST_STOP_BYTES = 256,
    MOST_MESSAGES = 4096,
    DEFAULT_TOKENS = 16,
    MOST_CHOICES = 128,
    MOST_BIASES = 1024,
    MOST_ROWS = 1024,
    MOST_NAME_BYTES = 64,
    MOST_LOGPROBS = 20
};

#define WANT_TOKENS "a whole number from 1 to 2147483647, or 0 for an echo alone"

bool kvf__problem_set(kvf__problem *out, unsigned status, const char *param, const char *fmt, ...)
{
    va_list args;
    *out = (kvf__problem){.status = status};
    if (param) snprintf(out->param, sizeof out->param, "%s", param);
    va_start(args, fmt);
    vsnprintf(out->message, sizeof out->message, fmt, args);
    va_end(args);
    return false;
}

bool kvf__problem_no_model(kvf__problem *out, const char *name)
{
    kvf__problem_set(out, 404, "model", "the model \"%.80s\" does not exist", name);
    out->code = "model_not_found";
    return false;
}

/* Destination of the fields of a body. */
typedef struct body_reader {
    kvf__request *to;
    kvf__problem *problem;
    int64_t *top; /* top_logprobs of a chat; -1: not given */
} body_reader;

enum {
    COMPLETIONS = KVF__COMPLETIONS,
    CHAT = KVF__CHAT,
    BOTH = COMPLETIONS | CHAT,
    TOKENIZE = KVF__TOKENIZE,
    DETOKENIZE = KVF__DETOKENIZE,
    CLASSIFY = KVF__CLASSIFY,
    LOAD = KVF__LOAD,
    CONTROL = KVF__LOAD | KVF__UNLOAD,
    ALL = BOTH | TOKENIZE | DETOKENIZE | CLASSIFY
};
typedef struct request_field {
    const char *name;
    int kinds; /* kinds of requests that have the field */
    /* NULL: accepted and ignored */
    bool (*read)(const body_reader *r, const struct request_field *field, const kvf_json *value);
    const char *want; /* expected value in the error; read_neutral: accepted neutral values as JSON,
                       * separated by '|' */
    double least, most; /* range of numbers */
    size_t at;          /* offset in kvf__request of numbers and booleans */
} request_field;

static bool refuse(const body_reader *r, const request_field *f, const char *want)
{
    return kvf__problem_set(r->problem, 400, f->name, "%s: want %s", f->name, want);
}

static bool no_memory(const body_reader *r)
{
    return kvf__problem_set(r->problem, 500, NULL, "out of memory");
}

/* Returns a text without NUL; NULL: the value is not one. */
static const char *text_of(const kvf_json *value)
{
    size_t bytes = 0;
    const char *text = kvf_json_str(value, &bytes);
    return text && strlen(text) == bytes ? text : NULL;
}

/* ---- numbers and truth values ---------------------------------------------------------------- */

static void *place_of(const body_reader *r, const request_field *f)
{
    return (char *)r->to + f->at;
}

static bool read_int(const body_reader *r, const request_field *f, const kvf_json *value)
{
    const int64_t n = kvf_json_int(value, 0), most = (int64_t)f->most;
    if (kvf_json_typeof(value) == KVF_JSON_INT && n >= (int64_t)f->least && n <= most) {
        memcpy(place_of(r, f), &n, sizeof n);
        return true;
    }
    if (f->want) return refuse(r, f, f->want);
    return kvf__problem_set(r->problem, 400, f->name, "%s: want a whole number from %lld to %lld",
                            f->name, (long long)f->least, (long long)most);
}

static bool read_real(const body_reader *r, const request_field *f, const kvf_json *value)
{
    const double x = kvf_json_real(value, NAN); /* NaN is outside every range */
    if (!(x >= f->least && x <= f->most)) return refuse(r, f, f->want);
    memcpy(place_of(r, f), &x, sizeof x);
    return true;
}

static bool read_bool(const body_reader *r, const request_field *f, const kvf_json *value)
{
    const bool yes = kvf_json_bool(value, false);
    if (kvf_json_typeof(value) != KVF_JSON_BOOL) return refuse(r, f, f->want);
    memcpy(place_of(r, f), &yes, sizeof yes);
    return true;
}

/* Reads logprobs: in a completion a number of likeliest tokens, in a chat a boolean. */
static bool read_logprobs(const body_reader *r, const request_field *f, const kvf_json *value)
{
    const bool chat = r->to->kind == KVF__CHAT, number = kvf_json_typeof(value) == KVF_JSON_INT;
    const int64_t n = kvf_json_int(value, 0);
    if (kvf_json_typeof(value) == KVF_JSON_BOOL && (chat || !kvf_json_bool(value, true))) {
        r->to->logprobs = kvf_json_bool(value, false) ? 0 : -1;
        return true;
    }
    if (number && chat && !n) return true; /* same as false */
    if (!number || chat || n < 0 || n > MOST_LOGPROBS)
        return refuse(r, f, chat ? "true or false" : "a whole number from 0 to 20");
    r->to->logprobs = n;
    return true;
}

static bool read_top_logprobs(const body_reader *r, const request_field *f, const kvf_json *value)
{
    const int64_t n = kvf_json_int(value, -1);
    if (kvf_json_typeof(value) != KVF_JSON_INT || n < 0 || n > MOST_LOGPROBS)
        return refuse(r, f, f->want);
    *r->top = n;
    return true;
}

static bool read_seed(const body_reader *r, const request_field *f, const kvf_json *value)
{
    if (kvf_json_typeof(value) != KVF_JSON_INT) return refuse(r, f, f->want);
    r->to->seed = (uint64_t)kvf_json_int(value, 0);
    r->to->seeded = true;
    return true;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool read_model(const body_reader *r, const request_field *f, const kvf_json *value)
{
    r->to->model = text_of(value);
    return r->to->model ? true : refuse(r, f, f->want);
}

static bool read_path(const body_reader *r, const request_field *f, const kvf_json *value)
{
    r->to->path = text_of(value);
    return r->to->path && *r->to->path ? true : refuse(r, f, f->want);
}

static bool read_ids(const body_reader *r, const request_field *f, const kvf_json *list,
                     kvf__ids *ids)
{
    if (!kvf_json_size(list)) return refuse(r, f, f->want);
    for (size_t i = 0; i < kvf_json_size(list); i++) {
        int64_t id = kvf_json_int(kvf_json_at(list, i), -1);
        if (id < 0 || id > INT32_MAX) return refuse(r, f, f->want);
        if (kvf__ids_add(NULL, ids, (int32_t)id)) return no_memory(r);
    }
    return true;
}

static bool read_one_prompt(const body_reader *r, const request_field *f, const kvf_json *value)
{
    kvf__text_prompt *to = &r->to->prompts[r->to->n_prompts++];
    if (kvf_json_typeof(value) == KVF_JSON_ARRAY) return read_ids(r, f, value, &to->ids);
    to->text = kvf_json_str(value, &to->bytes);
    return to->text ? true : refuse(r, f, f->want);
}

/* Reads "a", [1, 2], ["a", "b"], [[1, 2], [3]]. */
static bool read_prompt(const body_reader *r, const request_field *f, const kvf_json *value)
{
    bool several = kvf_json_typeof(value) == KVF_JSON_ARRAY && kvf_json_size(value) > 0 &&
                   kvf_json_typeof(kvf_json_at(value, 0)) != KVF_JSON_INT;
    size_t n = several ? kvf_json_size(value) : 1;
    if (n > MOST_CHOICES) return refuse(r, f, "at most 128 prompts");
    if (kvf__alloc_array(NULL, n, sizeof *r->to->prompts, &r->to->prompts)) return no_memory(r);
    for (size_t i = 0; i < n; i++)
        if (!read_one_prompt(r, f, several ? kvf_json_at(value, i) : value)) return false;
    return true;
}

static bool read_text_prompt(const body_reader *r, const request_field *f, const kvf_json *value)
{
    if (kvf_json_typeof(value) == KVF_JSON_ARRAY) return refuse(r, f, f->want);
    return read_prompt(r, f, value);
}

static bool read_tokens(const body_reader *r, const request_field *f, const kvf_json *value)
{
    if (kvf_json_typeof(value) != KVF_JSON_ARRAY) return refuse(r, f, f->want);
    if (kvf__alloc_array(NULL, 1, sizeof *r->to->prompts, &r->to->prompts)) return no_memory(r);
    r->to->n_prompts = 1;
    return !kvf_json_size(value) || read_ids(r, f, value, &r->to->prompts[0].ids);
}

static bool read_stop(const body_reader *r, const request_field *f, const kvf_json *value)
{
    bool list = kvf_json_typeof(value) == KVF_JSON_ARRAY;
    size_t n = list ? kvf_json_size(value) : 1;
    if (n > MOST_STOPS) return refuse(r, f, "at most 16 texts");
    if (kvf__alloc_array(NULL, n, sizeof *r->to->stop, &r->to->stop)) return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        const char *text = text_of(list ? kvf_json_at(value, i) : value);
        if (!text || !*text || strlen(text) > MOST_STOP_BYTES) return refuse(r, f, f->want);
        if (kvf__strdup(NULL, text, &r->to->stop[r->to->n_stop])) return no_memory(r);
        r->to->n_stop++;
    }
    return true;
}

/* Reads {"50256": -100, "464": 2.5}. */
static bool read_logit_bias(const body_reader *r, const request_field *f, const kvf_json *value)
{
    kvf_json *biases = (kvf_json *)value; /* the iterator needs a non-const object */
    const size_t n = kvf_json_size(value);
    if (kvf_json_typeof(value) != KVF_JSON_OBJECT) return refuse(r, f, f->want);
    if (n > MOST_BIASES) return refuse(r, f, "at most 1024 tokens");
    if (n && kvf__alloc_array(NULL, n, sizeof *r->to->bias, &r->to->bias)) return no_memory(r);
    for (void *it = kvf_json_iter(biases); it; it = kvf_json_next(biases, it)) {
        const char *key = kvf_json_iter_key(it);
        const double bias = kvf_json_real(kvf_json_iter_value(it), NAN);
        const size_t digits = strspn(key, "0123456789");
        const long id = digits && digits < 10 && !key[digits] ? strtol(key, NULL, 10) : -1;
        if (id < 0 || !(bias >= -100 && bias <= 100)) return refuse(r, f, f->want);
        kvf__penalties *to = &r->to->sampling.penalties;
        r->to->bias[to->n_bias++] = (kvf_token_bias){(int32_t)id, (float)bias};
    }
    r->to->sampling.penalties.bias = r->to->bias;
    return true;
}

static bool read_stream_options(const body_reader *r, const request_field *f, const kvf_json *value)
{
    const kvf_json *usage = kvf_json_get(value, "include_usage");
    size_t known = usage != NULL;
    if (kvf_json_typeof(value) != KVF_JSON_OBJECT || kvf_json_size(value) > known ||
        (usage && kvf_json_typeof(usage) != KVF_JSON_BOOL))
        return refuse(r, f, f->want);
    r->to->usage = kvf_json_bool(usage, false);
    return true;
}

/* Reads fields of unsupported features, which must have a neutral value. */
static bool read_neutral(const body_reader *r, const request_field *f, const kvf_json *value)
{
    char *text = kvf_json_text(value, KVF_JSON_COMPACT);
    bool neutral = false;
    for (const char *at = f->want; text && at && !neutral; at = strchr(at, '|')) {
        at += *at == '|';
        size_t n = strcspn(at, "|");
        neutral = strlen(text) == n && !memcmp(at, text, n);
    }
    kvf_json_text_free(text);
    if (neutral) return true;
    return kvf__problem_set(r->problem, 400, f->name, "%s: not supported, omit it", f->name);
}

/* The form of rows depends on the model's task. */
static bool read_input(const body_reader *r, const request_field *f, const kvf_json *value)
{
    const kvf_json_type type = kvf_json_typeof(value);
    if (type != KVF_JSON_STRING && type != KVF_JSON_OBJECT && type != KVF_JSON_ARRAY)
        return refuse(r, f, f->want);
    if (type == KVF_JSON_ARRAY && (!kvf_json_size(value) || kvf_json_size(value) > MOST_ROWS))
        return refuse(r, f, f->want);
    r->to->input = value;
    return true;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool bad_message(const body_reader *r, size_t i, const char *what)
{
    return kvf__problem_set(r->problem, 400, "messages", "messages[%zu]: %s", i, what);
}

/* Checks the author's name of a message, which no known chat template prints. */
static bool good_name(const kvf_json *name)
{
    if (!name || kvf_json_typeof(name) == KVF_JSON_NULL) return true;
    const char *text = text_of(name);
    return text && *text && strlen(text) <= MOST_NAME_BYTES;
}

static bool read_message(const body_reader *r, size_t i, kvf_json *message)
{
    kvf__message *to = &r->to->messages[i];
    const kvf_json *content = kvf_json_get(message, "content");
    if (kvf_json_typeof(message) != KVF_JSON_OBJECT) return bad_message(r, i, "want an object");
    for (void *it = kvf_json_iter(message); it; it = kvf_json_next(message, it)) {
        const char *key = kvf_json_iter_key(it);
        bool known = !strcmp(key, "role") || !strcmp(key, "content") || !strcmp(key, "name");
        if (!known && kvf_json_typeof(kvf_json_iter_value(it)) != KVF_JSON_NULL)
            return bad_message(r, i, "only role, content and name are supported");
    }
    if (!good_name(kvf_json_get(message, "name")))
        return bad_message(r, i, "name: want a text of 1 to 64 bytes");
    to->role = text_of(kvf_json_get(message, "role"));
    if (!to->role) return bad_message(r, i, "role: want a text");
    kvf_status st = kvf__message_content(NULL, content, &r->to->contents[i], to);
    if (st == KVF_ENOMEM) return no_memory(r);
    return st ? bad_message(r, i, "content: want a text, or parts of type text") : true;
}

static bool read_messages(const body_reader *r, const request_field *f, const kvf_json *value)
{
    size_t n = kvf_json_size(value);
    if (kvf_json_typeof(value) != KVF_JSON_ARRAY || !n || n > MOST_MESSAGES)
        return refuse(r, f, f->want);
    if (kvf__alloc_array(NULL, n, sizeof *r->to->messages, &r->to->messages)) return no_memory(r);
    if (kvf__alloc_array(NULL, n, sizeof *r->to->contents, &r->to->contents)) return no_memory(r);
    r->to->n_messages = n;
    for (size_t i = 0; i < n; i++)
        if (!read_message(r, i, kvf_json_at(value, i))) return false;
    return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define AT(member) offsetof(kvf__request, member)
static const request_field FIELDS[] = {
    {"model", ALL, read_model, .want = "the name of a model"},
    {"lora_name", CONTROL, read_model, .want = "the name of a model"},
    {"lora_path", LOAD, read_path, .want = "a path of a file below --prefix-dir"},
    {"lora_int_id", CONTROL, .read = NULL},
    {"prompt", COMPLETIONS, read_prompt,
     .want = "a text, an array of token ids, or an array of such prompts"},
    {"prompt", TOKENIZE, read_text_prompt, .want = "a text"},
    {"tokens", DETOKENIZE, read_tokens, .want = "an array of token ids"},
    {"input", CLASSIFY, read_input, .want = "a row, or an array of 1 to 1024 rows"},
    {"add_special_tokens", TOKENIZE, read_bool, .at = AT(form.add_special),
     .want = "true or false"},
    {"add_generation_prompt", TOKENIZE, read_bool, .at = AT(form.generation),
     .want = "true or false"},
    {"return_token_strs", TOKENIZE, read_bool, .at = AT(form.written), .want = "true or false"},
    {"messages", CHAT | TOKENIZE, read_messages, .want = "an array of 1 to 4096 messages"},
    {"max_tokens", BOTH, read_int, .at = AT(max_tokens), .most = INT32_MAX, .want = WANT_TOKENS},
    {"max_completion_tokens", CHAT, read_int, .at = AT(max_tokens), .least = 1, .most = INT32_MAX},
    {"temperature", BOTH, read_real, .at = AT(sampling.temperature), .most = 2,
     .want = "a number from 0 to 2"},
    {"top_p", BOTH, read_real, .at = AT(sampling.top_p), .least = DBL_TRUE_MIN, .most = 1,
     .want = "a number above 0 and at most 1"},
    {"top_k", BOTH, read_int, .at = AT(sampling.top_k), .most = INT32_MAX,
     .want = "a whole number from 0 on; 0: all"},
    {"min_p", BOTH, read_real, .at = AT(sampling.min_p), .most = 1, .want = "a number from 0 to 1"},
    {"logit_bias", BOTH, read_logit_bias,
     .want = "an object of token ids, each with a number from -100 to 100"},
    {"presence_penalty", BOTH, read_real, .at = AT(sampling.penalties.presence), .least = -2,
     .most = 2, .want = "a number from -2 to 2"},
    {"frequency_penalty", BOTH, read_real, .at = AT(sampling.penalties.frequency), .least = -2,
     .most = 2, .want = "a number from -2 to 2"},
    {"repetition_penalty", BOTH, read_real, .at = AT(sampling.penalties.repetition), .least = 0.01,
     .most = 100, .want = "a number from 0.01 to 100"},
    {"seed", BOTH, read_seed, .want = "a whole number"},
    {"stop", BOTH, read_stop, .want = "a text of 1 to 256 bytes, or an array of such"},
    {"stream", BOTH, read_bool, .at = AT(stream), .want = "true or false"},
    {"stream_options", BOTH, read_stream_options, .want = "{\"include_usage\": true or false}"},
    {"n", BOTH, read_int, .at = AT(n), .least = 1, .most = MOST_CHOICES},
    {"best_of", COMPLETIONS, read_neutral, .want = "1"},
    {"echo", COMPLETIONS, read_bool, .at = AT(echo), .want = "true or false"},
    {"suffix", COMPLETIONS, read_neutral, .want = "\"\""},
    {"logprobs", BOTH, read_logprobs, .want = NULL},
    {"top_logprobs", CHAT, read_top_logprobs, .want = "a whole number from 0 to 20"},
    {"tools", CHAT, read_neutral, .want = "[]"},
    {"tool_choice", CHAT, read_neutral, .want = "\"none\"|\"auto\""},
    {"parallel_tool_calls", CHAT, read_neutral, .want = "true|false"},
    {"response_format", CHAT, read_neutral, .want = "{\"type\":\"text\"}"},
    {"user", BOTH | CLASSIFY, .read = NULL},
    {"metadata", CHAT, .read = NULL},
    {"store", CHAT, read_neutral, .want = "false"},
    {"modalities", CHAT, read_neutral, .want = "[\"text\"]"},
    {"service_tier", CHAT, read_neutral, .want = "\"auto\"|\"default\""},
    {"safety_identifier", CHAT, .read = NULL},
    {"prompt_cache_key", CHAT, .read = NULL},
};
enum { N_FIELDS = sizeof FIELDS / sizeof FIELDS[0] };

static bool read_field(const body_reader *r, const char *name, const kvf_json *value)
{
    const int kind = (int)r->to->kind;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (strcmp(FIELDS[i].name, name) || !(FIELDS[i].kinds & kind)) continue;
        if (kvf_json_typeof(value) == KVF_JSON_NULL) return true; /* null means not given */
        return !FIELDS[i].read || FIELDS[i].read(r, &FIELDS[i], value);
    }
    return kvf__problem_set(r->problem, 400, name, "unknown field \"%.32s\"", name);
}

/* Checks for required fields. */
static bool check_there(const kvf__request *q, kvf__problem *problem)
{
    if (!q->model && (int)q->kind & (BOTH | CLASSIFY))
        return kvf__problem_set(problem, 400, "model", "model is missing");
    if (!q->model && (int)q->kind & CONTROL)
        return kvf__problem_set(problem, 400, "lora_name", "lora_name is missing");
    if (!q->path && q->kind == KVF__LOAD)
        return kvf__problem_set(problem, 400, "lora_path", "lora_path is missing");
    if (q->kind == KVF__CHAT && !q->messages)
        return kvf__problem_set(problem, 400, "messages", "messages are missing");
    if (q->kind == KVF__COMPLETIONS && !q->n_prompts)
        return kvf__problem_set(problem, 400, "prompt", "prompt is missing");
    if (q->kind == KVF__CLASSIFY && !q->input)
        return kvf__problem_set(problem, 400, "input", "input is missing");
    if (q->kind == KVF__TOKENIZE && !q->n_prompts == !q->messages)
        return kvf__problem_set(problem, 400, "prompt", "give either prompt or messages");
    if (q->kind == KVF__DETOKENIZE && !q->n_prompts)
        return kvf__problem_set(problem, 400, "tokens", "tokens are missing");
    return true;
}

/* Checks fields that depend on each other. */
static bool check_together(const body_reader *r)
{
    kvf__request *q = r->to;
    if (!q->max_tokens && !q->echo)
        return kvf__problem_set(r->problem, 400, "max_tokens", "max_tokens: want " WANT_TOKENS);
    if (*r->top > 0 && q->logprobs < 0)
        return kvf__problem_set(r->problem, 400, "top_logprobs",
                                "top_logprobs: only with \"logprobs\": true");
    if (*r->top > 0) q->logprobs = *r->top;
    return true;
}

static bool read_fields(const body_reader *r)
{
    kvf_json *root = r->to->root;
    if (kvf_json_typeof(root) != KVF_JSON_OBJECT)
        return kvf__problem_set(r->problem, 400, NULL, "the body is not a JSON object");
    for (void *it = kvf_json_iter(root); it; it = kvf_json_next(root, it))
        if (!read_field(r, kvf_json_iter_key(it), kvf_json_iter_value(it))) return false;
    if (!check_there(r->to, r->problem) || !check_together(r)) return false;
    if (r->to->usage && !r->to->stream)
        return kvf__problem_set(r->problem, 400, "stream_options",
                                "stream_options: only with \"stream\": true");
    if (r->to->n * (int64_t)r->to->n_prompts > MOST_CHOICES)
        return kvf__problem_set(r->problem, 400, "n",
                                "n: %lld for each of %zu prompts exceeds 128 in total",
                                (long long)r->to->n, r->to->n_prompts);
    return true;
}

bool kvf__request_parse(kvf_ctx *ctx, const char *body, size_t bytes, kvf__request_kind kind,
                        int64_t max_tokens, kvf__request *out, kvf__problem *problem)
{
    const bool chat = kind == KVF__CHAT;
    kvf__request request = {
        .kind = kind, .n = 1, .logprobs = -1, .sampling = {.temperature = 1, .top_p = 1}};
    int64_t top = -1;
    const body_reader r = {&request, problem, &top};
    request.form = (kvf__tokenize_form){.add_special = true, .generation = true};
    request.max_tokens = chat || max_tokens < DEFAULT_TOKENS ? max_tokens : DEFAULT_TOKENS;
    kvf_status st = kvf_json_parse(ctx, "body", body, bytes, &request.root);
    if (st)
        return kvf__problem_set(problem, st == KVF_ENOMEM ? 500 : 400, NULL, "%s",
                                kvf_ctx_error(ctx));
    if (!read_fields(&r)) {
        kvf__request_done(&request);
        return false;
    }
    if (request.max_tokens > max_tokens) request.max_tokens = max_tokens;
    *out = request;
    return true;
}

void kvf__request_forget(kvf__request *request)
{
    for (size_t i = 0; request->contents && i < request->n_messages; i++)
        kvf__buf_done(&request->contents[i]);
    kvf__free(request->contents);
    kvf__free(request->messages);
    for (size_t i = 0; i < request->n_prompts; i++)
        kvf__ids_done(&request->prompts[i].ids);
    kvf__free(request->prompts);
    kvf_json_free(request->root);
    request->contents = NULL;
    request->messages = NULL;
    request->prompts = NULL;
    request->n_messages = request->n_prompts = 0;
    request->model = request->path = NULL;
    request->input = NULL;
    request->root = NULL;
}

void kvf__request_done(kvf__request *request)
{
    kvf__request_forget(request);
    for (size_t i = 0; i < request->n_stop; i++)
        kvf__free(request->stop[i]);
    kvf__free(request->stop);
    kvf__free(request->bias);
    *request = (kvf__request){0};
}
