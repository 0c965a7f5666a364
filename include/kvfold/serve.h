/* A local HTTP server with the API of OpenAI. It holds one base in memory and serves many prefixes
 * on it, each under its own model name.
 *
 *     const kvf_serve_prefix prefixes[] = {{"devil", "prefix.h5", NULL}};
 *     kvf_serve_options options = kvf_serve_defaults();
 *     options.prefixes = prefixes;
 *     options.n_prefixes = 1;
 *     if (kvf_serve(ctx, base, &options, NULL)) fprintf(stderr, "%s\n", kvf_ctx_error(ctx));
 *
 *     POST /v1/completions, /v1/chat/completions    "model" names a prefix, or the base
 *     POST /v1/classify                             rows for the head of a prefix
 *     GET  /                                        a page for browsers
 *     GET  /v1/models, /health, /metrics            metrics in Prometheus' text form
 *     POST /v1/load_lora_adapter, /v1/unload_lora_adapter   as vLLM, for files of prefix_dirs
 *     GET  /tokenizer_info                          special tokens, chat template, as vLLM
 *     POST /tokenize, /detokenize                   ids of a text or chat; the text of ids
 *
 * Rows of all prefixes are decoded together, and join and leave between steps. An answer does not
 * depend on concurrent requests: it has the bits that kvf_generate gives for the prompt alone. With
 * n choices, the i-th is that of the i-th of n equal prompts; several prompts behave like a file
 * with each prompt n times. A prefix file that is replaced (by rename) is read again, and earlier
 * requests finish with the old one. Prefixes with a head of their own, virtual tokens at the input
 * and prefixes inside rows are served too. Adapters of task lm are refused, because their rows
 * could not be computed with others.
 *
 * Prefixes of other tasks classify. The rows of a request are computed alone, with the bits that
 * kvf_predict gives for a file of these rows. A base without a language-model head serves only
 * these prefixes.
 *
 * Work stops for a client that has closed the connection or its sending side. */
#ifndef KVFOLD_SERVE_H
#define KVFOLD_SERVE_H

#ifndef KVF_EXPERIMENTAL
#error "kvfold/serve.h may change in every release; to use it, define KVF_EXPERIMENTAL first"
#endif

#include <kvfold/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_serve_prefix {
    const char *name; /* letters, digits and ._:/-; at most 64, not the base's */
    const char *path; /* prefix, adapter or run file */
    const char *head; /* file with heads of several tasks: the task to use; else NULL */
} kvf_serve_prefix;

typedef struct kvf_serve_options {
    /* [n_prefixes]; texts are borrowed, also in the other fields */
    const kvf_serve_prefix *prefixes;
    size_t n_prefixes;
    /* [n_prefix_dirs] folders whose files NAME.h5, also in subfolders, are models. A file is read
     * when a request names it, and dropped when the memory of such prefixes would exceed
     * prefix_memory bytes. Files may be added, replaced (by rename) and removed at any time. */
    const char *const *prefix_dirs;
    size_t n_prefix_dirs;
    int64_t prefix_memory;
    /* Bytes for keys and values of prompts, which later rows of the same model and token take
     * instead of reading the same text again; 0: none. */
    int64_t cache_memory;
    const char *base_name;     /* model name of the base; NULL: kvf_base_name */
    kvf_checkpoint checkpoint; /* state of run files */
    bool allow_other_base;
    const char *chat_template; /* NULL: the template of the prefix, or for chats that of the base */
    const char *host;          /* address to listen on, a numeric IPv4 or IPv6 address */
    /* [n_allow_hosts] accepted values of the header Host, in addition to the names of this
     * machine and `host`. On a loopback address other values are answered with 421, which
     * prevents DNS rebinding by web pages. On other addresses they are refused only if this list
     * is not empty. */
    const char *const *allow_hosts;
    size_t n_allow_hosts;
    int64_t port; /* 0: any free port */
    /* [n_cors] origins whose pages may read answers, "https://app.example"; "*": all pages.
     * Browsers hide the answers from pages of other origins. */
    const char *const *cors;
    size_t n_cors;
    const char *access_log; /* file that receives a line of JSON for each request; "-": standard
                               output; NULL: none */
    /* File with the tokens that clients send as "Authorization: Bearer"; NULL: none. Each line is a
     * token, and patterns (fnmatch) of the models that it may use and see; without patterns all. */
    const char *token_file;
    /* limits of each token, 0: none: rows computed together, waiting requests, tokens a minute of
     * prompts and answers */
    int64_t tenant_rows, tenant_queue, tenant_tokens;
    int64_t max_body; /* maximum bytes of a request */
    /* choices computed together; others wait, and requests take turns at free rows */
    int64_t max_rows;
    int64_t max_queue;       /* maximum number of choices that wait; more are refused with 503 */
    int64_t max_queue_bytes; /* maximum memory of waiting choices; one is always accepted */
    int64_t max_tokens;      /* upper limit of a choice's max_tokens */
    int64_t max_context;     /* maximum tokens of a row, prompt and answer; 0: the model's */
    int64_t timeout;         /* seconds within which a request must arrive */
    /* Called once the server accepts connections. May be NULL. */
    void (*listening)(void *user, int port);
    void *user;
} kvf_serve_options;
/* Returns the defaults: 127.0.0.1, port 8080, 1 MiB, 16 rows, 256 waiting of 64 MiB, 1024 tokens,
 * 4096 in a row, 30 seconds; 1 GiB for prefixes of folders. */
kvf_serve_options kvf_serve_defaults(void);

typedef struct kvf_serve_totals {
    int64_t requests, prompt_tokens, new_tokens, reloads;
    double seconds;
} kvf_serve_totals;

/* Serves until the flag of kvf_ctx_set_stop() is set, then answers running and waiting requests and
 * returns ESTOPPED. The calling thread computes. HTTP, reading of requests and watching of
 * connections have a thread each. totals may be NULL. EUSAGE, EMISMATCH and errors of
 * kvf_prefix_open: nothing was served; EIO: the address cannot be used; EUNSUPPORTED: built without
 * libmicrohttpd. */
kvf_status kvf_serve(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                     kvf_serve_totals *totals);

#ifdef __cplusplus
}
#endif
#endif
