/* A local HTTP server in the manner of OpenAI's API: one base in memory, many prefixes on it, each
 * a model by its name.
 *
 *     const kvf_serve_prefix prefixes[] = {{"devil", "prefix.h5", NULL}};
 *     kvf_serve_options options = kvf_serve_defaults();
 *     options.prefixes = prefixes;
 *     options.n_prefixes = 1;
 *     if (kvf_serve(ctx, base, &options, NULL)) fprintf(stderr, "%s\n", kvf_ctx_error(ctx));
 *
 *     POST /v1/completions, /v1/chat/completions    "model" names a prefix, or the base
 *     POST /v1/classify                             rows for the head of a prefix
 *     GET  /                                        a page for people
 *     GET  /v1/models, /health, /metrics            metrics in Prometheus' text form
 *     GET  /tokenizer_info                          special tokens, chat template, as vLLM
 *     POST /tokenize, /detokenize                   ids of a text or chat; the text of ids
 *
 * Rows of all prefixes are decoded together, and join and leave between steps. What a request is
 * answered does not depend on what is computed with it: it is what kvf_generate gives for that
 * prompt alone, bit for bit; of n choices, the i-th what it gives for the i-th of n such prompts,
 * and of several prompts those of a file with each n times. A prefix file that is replaced (by
 * rename) is read again: requests that came before end with the old one. Prefixes with a head of
 * their own, virtual tokens at the input and prefixes inside rows are served too; of task lm what
 * changes the base itself (adapters) is refused, as its rows could not be computed with others.
 *
 * Prefixes of other tasks classify: rows of a request are computed alone, with the bits that
 * kvf_predict gives a file of these rows. A base that predicts no next token serves those only.
 *
 * Nothing is computed for a client that has hung up, or has ended its side of the connection. */
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
    const char *head; /* of a file with heads of several tasks: the one to use; else NULL */
} kvf_serve_prefix;

typedef struct kvf_serve_options {
    const kvf_serve_prefix *prefixes; /* [n_prefixes]; texts are borrowed, here and below */
    size_t n_prefixes;
    const char *base_name;     /* of the base as a model; NULL: kvf_base_name */
    kvf_checkpoint checkpoint; /* of run files */
    bool allow_other_base;
    const char *chat_template; /* NULL: the prefix's own, else the base's for chats alone */
    const char *host;          /* address to listen on, IPv4 or IPv6 in numbers */
    /* [n_allow_hosts]: names by which requests may come (header Host), besides those of this
     * machine and `host`. On a loopback address others are answered 421, lest a page elsewhere
     * reach it by a name that it had lead here; on other addresses so only where this list is not
     * empty. */
    const char *const *allow_hosts;
    size_t n_allow_hosts;
    int64_t port; /* 0: a free one */
    /* [n_cors] origins whose pages may read answers, "https://app.example"; "*": all pages. Others
     * can ask, but their browsers do not show them what is answered. */
    const char *const *cors;
    size_t n_cors;
    const char *access_log;  /* file that gets a line of JSON for each request; "-": standard
                              * output; NULL: none */
    const char *token_file;  /* its first line must come as "Authorization: Bearer"; NULL: none */
    int64_t max_body;        /* bytes of a request */
    int64_t max_rows;        /* choices computed together; further ones wait, and free rows go
                              * round by request */
    int64_t max_queue;       /* that wait for a row; further ones are refused with 503 */
    int64_t max_queue_bytes; /* that those take, likewise; one is always taken */
    int64_t max_tokens;      /* most that a choice gets, whatever is asked for */
    int64_t max_context;     /* most tokens in a row, prompt and answer; 0: the model's */
    int64_t timeout;         /* seconds in which a request must have arrived */
    /* Called once connections are accepted. May be NULL. */
    void (*listening)(void *user, int port);
    void *user;
} kvf_serve_options;
/* 127.0.0.1, port 8080, 1 MiB, 16 rows, 256 waiting of 64 MiB, 1024 tokens, 4096 in a row, 30
 * seconds. */
kvf_serve_options kvf_serve_defaults(void);

typedef struct kvf_serve_totals {
    int64_t requests, prompt_tokens, new_tokens, reloads;
    double seconds;
} kvf_serve_totals;

/* Serves until the flag of kvf_ctx_set_stop() is set: running and waiting requests are answered,
 * further ones are not. ESTOPPED then. Computes in the calling thread; HTTP, reading
 * requests and watching connections have one each. totals may be NULL. EUSAGE, EMISMATCH and what
 * kvf_prefix_open gives: nothing was served; EIO: the address cannot be listened on; EUNSUPPORTED:
 * built without libmicrohttpd. */
kvf_status kvf_serve(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                     kvf_serve_totals *totals);

#ifdef __cplusplus
}
#endif
#endif
