/* Access control. A request must use a name of this machine. Otherwise a web page could reach the
 * server through a name of its own that resolves to this machine (DNS rebinding). It must send the
 * API key, if one is set. A page of another origin may read answers only if --cors names the
 * origin. */
#include "access.h"
#include "infile.h"
#include "map.h"
#include "utf8.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <fnmatch.h>
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

/* ---- tenants --------------------------------------------------------------------------------- */

enum { FILE_BYTES = 4 << 20, MOST_TENANTS = 1 << 16, MOST_PATTERNS = 64 };

static bool next_word(const char **at, const char *end, size_t *n)
{
    while (*at < end && isspace((unsigned char)**at))
        ++*at;
    for (*n = 0; *at + *n < end && !isspace((unsigned char)(*at)[*n]);)
        ++*n;
    return *n > 0;
}

/* Adds a line that is not blank; line_of: numbers of lines by token. */
static kvf_status add_tenant(kvf_ctx *ctx, const char *path, kvf__tenants *out, kvf__map *line_of,
                             int64_t number, const char *at, const char *end)
{
    kvf__tenant *tenant = &out->item[out->n];
    size_t n = 0, capacity = 0;
    int64_t before = 0;
    tenant->line = number;
    next_word(&at, end, &n);
    if (kvf__map_get(line_of, at, n, &before))
        return kvf__fail(ctx, KVF_EFORMAT, "%s:%lld: the token of line %lld again", path,
                         (long long)number, (long long)before);
    KVF_TRY(kvf__map_put(ctx, line_of, at, n, number));
    out->n++;
    KVF_TRY(kvf__strndup(ctx, at, n, &tenant->token));
    for (at += n; next_word(&at, end, &n); at += n) {
        if (tenant->n_patterns == MOST_PATTERNS)
            return kvf__fail(ctx, KVF_EFORMAT, "%s:%lld: more than %d patterns", path,
                             (long long)number, MOST_PATTERNS);
        KVF_TRY(kvf__reserve(ctx, &tenant->patterns, &capacity, tenant->n_patterns + 1,
                             sizeof *tenant->patterns));
        KVF_TRY(kvf__strndup(ctx, at, n, &tenant->patterns[tenant->n_patterns]));
        tenant->n_patterns++;
    }
    return KVF_OK;
}

static kvf_status add_lines(kvf_ctx *ctx, const char *path, const kvf__buf *text, kvf__tenants *out)
{
    const char *line = NULL;
    const size_t mark = text->n > 2 && !memcmp(text->data, "\xEF\xBB\xBF", 3) ? 3
                                                                              : 0; /* of order */
    size_t at = mark, n = 0, lines = 0;
    kvf__map line_of = {0};
    kvf_status st = KVF_OK;
    while (kvf__next_line(text->data, text->n, &at, &line, &n))
        lines += !kvf__is_blank_line(line, n);
    if (!lines || lines > MOST_TENANTS)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: %zu lines with a token, want 1 to %d", path, lines,
                         MOST_TENANTS);
    KVF_TRY(kvf__alloc_array(ctx, lines, sizeof *out->item, &out->item));
    at = mark;
    for (int64_t i = 1; !st && kvf__next_line(text->data, text->n, &at, &line, &n); i++)
        if (!kvf__is_blank_line(line, n))
            st = add_tenant(ctx, path, out, &line_of, i, line, line + n);
    kvf__map_done(&line_of);
    return st;
}

kvf_status kvf__tenants_read(kvf_ctx *ctx, const char *path, kvf__tenants *out)
{
    kvf__buf text = {0};
    kvf_status st = kvf__read_file(ctx, path, FILE_BYTES, &text);
    if (!st) st = add_lines(ctx, path, &text, out);
    kvf__buf_done(&text);
    return st;
}

void kvf__tenants_done(kvf__tenants *tenants)
{
    for (size_t i = 0; i < tenants->n; i++) {
        for (size_t k = 0; k < tenants->item[i].n_patterns; k++)
            kvf__free(tenants->item[i].patterns[k]);
        kvf__free(tenants->item[i].patterns);
        kvf__free(tenants->item[i].token);
    }
    kvf__free(tenants->item);
    *tenants = (kvf__tenants){0};
}

kvf__tenant *kvf__tenant_of(const kvf__tenants *tenants, const char *token)
{
    kvf__tenant *found = NULL;
    for (size_t i = 0; i < tenants->n; i++)
        if (kvf__token_equal(token, tenants->item[i].token)) found = &tenants->item[i];
    return found;
}

bool kvf__tenant_may(const kvf__tenant *tenant, const char *model)
{
    if (!tenant || !tenant->n_patterns) return true;
    for (size_t i = 0; i < tenant->n_patterns; i++)
        if (!fnmatch(tenant->patterns[i], model, 0)) return true;
    return false;
}
