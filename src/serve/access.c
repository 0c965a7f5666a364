/* Access control. A request must use a name of this machine. Otherwise a web page could reach the
 * server through a name of its own that resolves to this machine (DNS rebinding). It must send the
 * API key, if one is set. A page of another origin may read answers only if --cors names the
 * origin. */
#include "access.h"
#include "infile.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <unistd.h>

/* ---- names ----------------------------------------------------------------------------------- */

enum { HOST_BYTES = 256 };

/* Returns the name or address in "name:port" or "[address]:port", without a trailing dot. */
static bool split_host(const char *host, char name[HOST_BYTES])
{
    const bool six = *host == '[';
    const char *from = host + six;
    size_t n = strcspn(from, six ? "]" : ":");
    const char *rest = from + n;
    if (six && *rest++ != ']') return false;
    if (n && from[n - 1] == '.') n--;
    if (!n || n >= HOST_BYTES) return false;
    memcpy(name, from, n);
    name[n] = 0;
    if (*rest == ':') rest += 1 + strspn(rest + 1, "0123456789");
    return !*rest;
}

static bool is_loopback(const char *name)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, name, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, name, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static bool is_own(const char *name)
{
    char own[HOST_BYTES];
    if (!strcasecmp(name, "localhost") || is_loopback(name)) return true;
    if (gethostname(own, sizeof own)) return false;
    own[sizeof own - 1] = 0;
    return !strcasecmp(name, own);
}

bool kvf__host_known(const kvf_serve_options *options, const char *host)
{
    char name[HOST_BYTES], other[HOST_BYTES];
    if (!split_host(host, name)) return false;
    if (is_own(name) || !strcasecmp(name, options->host)) return true;
    for (size_t i = 0; i < options->n_allow_hosts; i++)
        if (split_host(options->allow_hosts[i], other) && !strcasecmp(name, other)) return true;
    return false;
}

/* ---- pages elsewhere (cross-origin resource sharing, fetch.spec.whatwg.org) --------------------
 */

const char *kvf__origin_allowed(const kvf_serve_options *options, const char *origin)
{
    for (size_t i = 0; origin && i < options->n_cors; i++)
        if (!strcmp(options->cors[i], "*") || !strcmp(options->cors[i], origin))
            return options->cors[i];
    return NULL;
}

/* Accepts "https://app.example:8443" in lower case, as browsers send it. */
static bool is_origin(const char *text)
{
    const char *name = strstr(text, "://");
    if (!name || name == text || !name[3]) return false;
    for (const char *c = text; *c; c++)
        if (isspace((unsigned char)*c) || isupper((unsigned char)*c)) return false;
    return !strpbrk(name + 3, "/?#@");
}

kvf_status kvf__origins_check(kvf_ctx *ctx, const kvf_serve_options *options)
{
    for (size_t i = 0; i < options->n_cors; i++)
        if (strcmp(options->cors[i], "*") != 0 && !is_origin(options->cors[i]))
            return kvf__fail(ctx, KVF_EUSAGE,
                             "cors \"%.80s\": want * or an origin such as https://app.example",
                             options->cors[i]);
    return KVF_OK;
}

/* ---- token ----------------------------------------------------------------------------------- */

bool kvf__token_equal(const char *given, const char *token)
{
    const size_t n = strlen(given), want = strlen(token);
    volatile unsigned different = n != want;
    for (size_t i = 0; i < n; i++)
        different |= (unsigned char)given[i] ^ (unsigned char)token[want ? i % want : 0];
    return !different;
}

kvf_status kvf__token_read(kvf_ctx *ctx, const char *path, char **out)
{
    enum { LIMIT = 4096 };
    kvf__buf text = {0};
    KVF_TRY(kvf__read_file(ctx, path, LIMIT, &text));
    const char *from = text.data ? text.data + strspn(text.data, " \t\n\v\f\r") : "";
    size_t n = strcspn(from, "\r\n");
    while (n && isspace((unsigned char)from[n - 1]))
        n--;
    kvf_status st = n ? kvf__strndup(ctx, from, n, out)
                      : kvf__fail(ctx, KVF_EFORMAT, "%s: the first line has no token", path);
    kvf__buf_done(&text);
    return st;
}
