/* A base with its prefixes. Prefixes are opened first, because they are small and a wrong name
 * should fail before a base is loaded; except those of methods that read the base. */
#include "open_prefix.h"

struct kvf_session {
    kvf_base *base;
    kvf_prefix **prefixes; /* [n]; NULL if not yet open */
    size_t n;
};

typedef struct opening {
    kvf_ctx *ctx;
    const char *base, *prefix;
    kvf_session_options options;
    kvf_session *session;
} opening;

static const char *path_of(const opening *o, size_t i)
{
    return i ? o->options.more[i - 1] : o->prefix;
}

/* Opens the prefixes that need the base if it is open, else the others. */
static kvf_status open_prefixes(const opening *o)
{
    kvf_session *s = o->session;
    for (size_t i = 0; o->prefix && i < s->n; i++) {
        bool later = false;
        KVF_TRY(kvf__prefix_needs_base(o->ctx, path_of(o, i), &later));
        if (later != (s->base != NULL)) continue;
        KVF_TRY(kvf_prefix_open_on(o->ctx, path_of(o, i), s->base, o->options.checkpoint,
                                   &s->prefixes[i]));
        if (o->options.head) KVF_TRY(kvf_prefix_use_head(o->ctx, s->prefixes[i], o->options.head));
    }
    return KVF_OK;
}

/* The list always has room for it. */
static kvf_status open_own_head(const opening *o)
{
    bool there = false;
    KVF_TRY(kvf__base_has_head(o->ctx, o->base, &there));
    if (!there) return KVF_OK;
    o->session->n = 1;
    return kvf_prefix_open(o->ctx, o->base, KVF_CHECKPOINT_DEFAULT, &o->session->prefixes[0]);
}

/* Returns the first that changes the base; kvf_prefix_check refuses further prefixes. */
static const kvf_prefix *changing(const kvf_session *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->prefixes[i] && kvf_prefix_changes_base(s->prefixes[i])) return s->prefixes[i];
    return NULL;
}

static kvf_status open_all(const opening *o)
{
    kvf_session *s = o->session;
    KVF_TRY(open_prefixes(o));
    if (!o->prefix && o->options.own_head) KVF_TRY(open_own_head(o));
    KVF_TRY(kvf_base_open_for(o->ctx, o->base, &o->options.base, changing(s), &s->base));
    KVF_TRY(open_prefixes(o));
    for (size_t i = 0; i < s->n; i++)
        KVF_TRY(kvf_prefix_check(o->ctx, s->prefixes[i], s->base, o->options.allow_other_base));
    if (!o->options.drop_layers) return KVF_OK;
    return kvf_base_drop_layers(o->ctx, s->base, o->options.drop_layers);
}

kvf_status kvf_session_open(kvf_ctx *ctx, const char *base, const char *prefix,
                            const kvf_session_options *options, kvf_session **out)
{
    KVF_TRY(KVF__NEED(ctx, base, out));
    opening o = {.ctx = ctx, .base = base, .prefix = prefix};
    if (options) o.options = *options;
    KVF_TRY(KVF__CHECK_ENUM(ctx, o.options.checkpoint, KVF_CHECKPOINT_LAST));
    if (o.options.n_more) KVF_TRY(KVF__NEED(ctx, options->more));
    for (size_t i = 0; i < o.options.n_more; i++)
        KVF_TRY(KVF__NEED(ctx, options->more[i]));
    const size_t room = 1 + o.options.n_more;
    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_session_options, &o.options));
    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_base_options, &o.options.base));
    if (!prefix && o.options.n_more)
        return kvf__fail(ctx, KVF_EUSAGE, "several prefixes: the first is missing");
    KVF_TRY(kvf__alloc(ctx, sizeof *o.session, &o.session));
    kvf_status st = kvf__alloc_array(ctx, room, sizeof *o.session->prefixes, &o.session->prefixes);
    if (!st && prefix) o.session->n = room;
    if (!st) st = open_all(&o);
    KVF__GIVE(st, out, o.session, kvf_session_close(o.session));
    return st;
}

void kvf_session_close(kvf_session *session)
{
    if (!session) return;
    for (size_t i = 0; i < session->n; i++)
        kvf_prefix_free(session->prefixes[i]);
    kvf__free(session->prefixes);
    kvf_base_free(session->base);
    kvf__free(session);
}

kvf_base *kvf_session_base(const kvf_session *session)
{
    return session ? session->base : NULL;
}

kvf_prefix *kvf_session_prefix(const kvf_session *session)
{
    return session && session->n ? session->prefixes[0] : NULL;
}

kvf_prefix *const *kvf_session_prefixes(const kvf_session *session, size_t *n)
{
    if (n) *n = session ? session->n : 0;
    return session ? session->prefixes : NULL;
}
