/* kvfold serve: a local HTTP server for a base and many prefixes, until a signal ends it. */
#include "cli_model.h"
#include "cli_progress.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct serve_values {
    kvf_serve_options serve;
    const char *base;
    kvf_base_options how;
    const char *prefix_memory, *cache_memory;
    kvf__strings prefixes, prefix_dirs, heads, allow_hosts, cors;
} serve_values;

#define AT(field)    offsetof(serve_values, field)
#define SERVE(field) AT(serve.field)
static const kvf__option_row OPTIONS[] = {
    {"base", "PATH", "", KVF_TEXT, AT(base), "base model: Hugging Face folder or GGUF file"},
    CLI_LORA(AT(how.lora)),
    {"prefix", "[NAME=]FILE", "", KVF_TEXTS, AT(prefixes),
     "prefix or run file to serve as model NAME (default: the file's name without folder and "
     "ending); may be repeated; a replaced file is read again"},
    {"prefix-dir", "DIR", "", KVF_TEXTS, AT(prefix_dirs),
     "folder whose files NAME.h5, also in subfolders, are served as models NAME: read at first "
     "use, and noticed when they are added, replaced or removed; may be repeated"},
    {"prefix-memory", "SIZE", "1G", KVF_TEXT, AT(prefix_memory),
     "memory for prefixes of --prefix-dir, such as 500M; the least recently used are dropped"},
    {"cache-memory", "SIZE", "0", KVF_TEXT, AT(cache_memory),
     "memory for prompts, such as 2G: a prompt that begins like an earlier one of its model and "
     "key "
     "takes the common parts of 256 tokens from there; 0: none"},
    {"head", "NAME=HEAD", "", KVF_TEXTS, AT(heads),
     "head of a model whose prefix was trained on several tasks; may be repeated"},
    {"base-name", "NAME", "its own", KVF_TEXT, SERVE(base_name), "model name of the bare base"},
    {"host", "ADDRESS", "127.0.0.1", KVF_TEXT, SERVE(host), "numeric address to listen on"},
    {"port", "N", "8080", KVF_COUNT, SERVE(port),
     "port to listen on; 0: a free port, which is printed"},
    {"allow-host", "NAME", "", KVF_TEXTS, AT(allow_hosts),
     "Host header to accept besides this machine's, such as a reverse proxy's; other hosts get "
     "421; may be repeated"},
    {"cors", "ORIGIN", "", KVF_TEXTS, AT(cors),
     "origin whose pages may read answers, such as https://app.example; *: all; may be repeated"},
    {"access-log", "FILE", "", KVF_TEXT, SERVE(access_log),
     "file to which a line of JSON is appended for each request; -: standard output"},
    {"token-file", "FILE", "", KVF_TEXT, SERVE(token_file),
     "file of API keys that requests must send, as Authorization: Bearer; each line: KEY [PATTERN "
     "...], the names of models that the key may use (default: all)"},
    {"tenant-rows", "N", "0", KVF_COUNT, SERVE(tenant_rows),
     "maximum number of answers computed together for one key; 0: no limit"},
    {"tenant-queue", "N", "0", KVF_COUNT, SERVE(tenant_queue),
     "maximum number of waiting requests of one key; 0: no limit"},
    {"tenant-tokens", "N", "0", KVF_COUNT, SERVE(tenant_tokens),
     "tokens of prompts and answers that one key may use in a minute; 0: no limit"},
    {"max-body", "BYTES", "1048576", KVF_COUNT, SERVE(max_body), "largest request"},
    {"max-rows", "N", "16", KVF_COUNT, SERVE(max_rows),
     "maximum number of answers computed together; others wait"},
    {"max-queue", "N", "256", KVF_COUNT, SERVE(max_queue),
     "maximum number of waiting requests; others are refused"},
    {"max-queue-bytes", "BYTES", "67108864", KVF_COUNT, SERVE(max_queue_bytes),
     "maximum memory for waiting requests; others are refused"},
    {"max-tokens", "N", "1024", KVF_COUNT, SERVE(max_tokens),
     "maximum number of new tokens in an answer; a larger max_tokens is lowered to it"},
    {"max-context", "N", "4096", KVF_COUNT, SERVE(max_context),
     "maximum number of tokens in prompt and answer together; 0: the model's positions"},
    {"timeout", "SECONDS", "30", KVF_COUNT, SERVE(timeout), "time limit for a request to arrive"},
    CLI_CHAT_TEMPLATE(SERVE(chat_template), "chat template of prompts"),
    CLI_CHECKPOINT(SERVE(checkpoint), "state of run files to use"),
    {"allow-other-base", NULL, "", KVF_FLAG, SERVE(allow_other_base),
     "accept prefixes made for another base of the same shape"},
    CLI_WEIGHTS(AT(how.weight_dtype), AT(how.stream_layers)),
    CLI_AUTO_PRECISION(AT(how.precision)),
};

typedef struct session {
    const cli_call *call;
    const char *host;
} session;

/* Prints the address of the server, the only result. */
static void print_address(void *user, int port)
{
    const session *s = user;
    const bool six = strchr(s->host, ':') != NULL;
    char url[128];
    snprintf(url, sizeof url, "http://%s%s%s:%d", six ? "[" : "", s->host, six ? "]" : "", port);
    if (s->call->common.json) {
        cli_print_json(s->call, kvf__json_of("url:s port:I", url, (int64_t)port));
    } else {
        printf("listening on %s\n", url);
    }
    fflush(stdout);
}

/* Applies "NAME=HEAD" to the prefix of that name. */
static int give_head(const cli_call *call, const char *text, kvf_serve_prefix *prefixes, size_t n)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return cli_misuse(call->command, "--head \"%s\": want NAME=HEAD", text);
    for (size_t i = 0; i < n; i++)
        if (!strncmp(prefixes[i].name, text, (size_t)(equals - text)) &&
            !prefixes[i].name[equals - text]) {
            prefixes[i].head = equals + 1;
            return CLI_OK;
        }
    return cli_misuse(call->command, "--head \"%s\": no --prefix has that name", text);
}

/* Splits "NAME=FILE"; the default name is the file's without folder and extension. The caller frees
 * the name. */
static int split_prefix(const cli_call *call, const char *text, kvf_serve_prefix *out)
{
    const char *equals = strchr(text, '='), *slash = strrchr(text, '/');
    const char *from = equals ? text : slash ? slash + 1 : text, *ending = strrchr(from, '.');
    const char *to = equals ? equals : ending && ending > from ? ending : text + strlen(text);
    if (to == from || (equals && !equals[1]))
        return cli_misuse(call->command, "--prefix \"%s\": want FILE or NAME=FILE", text);
    char *name = strndup(from, (size_t)(to - from));
    if (!name) return cli_fail(call->command, "out of memory");
    *out = (kvf_serve_prefix){.name = name, .path = equals ? equals + 1 : text};
    return CLI_OK;
}

static int serve_on(cli_call *call, serve_values *v, kvf_base *base)
{
    session s = {call, v->serve.host};
    kvf_serve_totals totals = {0};
    v->serve.allow_hosts = v->allow_hosts.item;
    v->serve.n_allow_hosts = v->allow_hosts.n;
    if (v->serve.access_log && !strcmp(v->serve.access_log, CLI_STDOUT)) v->serve.access_log = "-";
    v->serve.prefix_dirs = v->prefix_dirs.item;
    v->serve.n_prefix_dirs = v->prefix_dirs.n;
    v->serve.cors = v->cors.item;
    v->serve.n_cors = v->cors.n;
    kvf_ctx_set_stop(call->ctx, cli_stop_install());
    v->serve.listening = print_address;
    v->serve.user = &s;
    kvf_status st = kvf_serve(call->ctx, base, &v->serve, &totals);
    if (st != KVF_ESTOPPED) return cli_fail_status(call, st);
    if (!call->common.quiet)
        cli_fail(call->command, "stopped; requests answered: %lld, tokens written: %lld",
                 (long long)totals.requests, (long long)totals.new_tokens);
    return CLI_SIGNAL + cli_stop_signal();
}

static int read_size(cli_call *call, const char *what, const char *text, int64_t *out)
{
    if (kvf__size_of(text, out)) return CLI_OK;
    return cli_misuse(call->command, "--%s-memory \"%s\": want a size such as 500M or 2G", what,
                      text);
}

static int serve(cli_call *call, serve_values *v, kvf_serve_prefix *prefixes)
{
    kvf_base *base = NULL;
    int code = CLI_OK;
    for (size_t i = 0; i < v->prefixes.n && !code; i++)
        code = split_prefix(call, v->prefixes.item[i], &prefixes[i]);
    for (size_t i = 0; i < v->heads.n && !code; i++)
        code = give_head(call, v->heads.item[i], prefixes, v->prefixes.n);
    if (!code) code = read_size(call, "prefix", v->prefix_memory, &v->serve.prefix_memory);
    if (!code) code = read_size(call, "cache", v->cache_memory, &v->serve.cache_memory);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    kvf_status st = kvf_base_open(call->ctx, v->base, &v->how, &base);
    if (st) return cli_fail_status(call, st);
    v->serve.prefixes = prefixes;
    v->serve.n_prefixes = v->prefixes.n;
    code = serve_on(call, v, base);
    kvf_base_free(base);
    return code;
}

static int run(cli_call *call)
{
    serve_values v = {.serve = kvf_serve_defaults(), .prefix_memory = "1G", .cache_memory = "0"};
    int code = cli_set_values(call, &v);
    if (code) return code;
    kvf_serve_prefix *prefixes = calloc(v.prefixes.n + 1, sizeof *prefixes);
    code = prefixes ? serve(call, &v, prefixes) : cli_fail(call->command, "out of memory");
    for (size_t i = 0; prefixes && i < v.prefixes.n; i++)
        free((void *)prefixes[i].name);
    free(prefixes);
    return code;
}

const cli_command cli_serve = {
    .name = "serve",
    .group = CLI_USE,
    .synopsis = "--base PATH [--prefix [NAME=]FILE ...] [--prefix-dir DIR ...] [options]",
    .summary = "Serves a base and prefixes over HTTP, compatible with the OpenAI API.",
    .notes = "POST /v1/completions and /v1/chat/completions: \"model\" names a prefix, or the "
             "base; \"prompt\" is a text, token ids, or an array of either. POST /v1/classify: "
             "\"input\" is a text, an array of two, an array of words, an object with a row's "
             "fields, or an array of these; the head of a prefix answers as `kvfold predict` "
             "does. GET / is a page for browsers. GET /v1/models, /metrics (Prometheus), "
             "/health; GET /tokenizer_info, POST /tokenize and /detokenize for clients without a "
             "tokenizer. An answer equals the output of `kvfold generate` for its prompt, prefix "
             "and seed, whatever other requests there are. Log-probabilities (logprobs, "
             "top_logprobs) of a prompt (echo) equal those of `kvfold score`. Unsupported fields "
             "(tools) are refused. After SIGINT or SIGTERM the server answers accepted requests, "
             "then exits.\n",
    .required = "base",
    CLI_ROWS(OPTIONS),
    .run = run,
};
