/* Stores options in a run file as an object of scalars, and restores them for --resume. */
#include "base_int.h"
#include "options.h"

#include <math.h>
#include <string.h>

/* ---- storing --------------------------------------------------------------------------------- */

static kvf_json *value_of(const kvf_train_options *o, const kvf__option *r)
{
    const void *at = kvf__option_field(o, r);
    const char *text;
    size_t n = 0;
    switch (r->row.kind) {
    case KVF_COUNT:
    case KVF_POSITIVE:
    case KVF_OR_AUTO:
        return kvf_json_new_int(*(const int64_t *)at);
    case KVF_SEED:
        return kvf_json_new_int((int64_t) * (const uint64_t *)at);
    case KVF_AMOUNT:
    case KVF_ABOVE_0:
    case KVF_SHARE:
    case KVF_REAL:
        return kvf_json_new_real(*(const double *)at);
    case KVF_FLAG:
        return kvf_json_new_bool(*(const bool *)at);
    case KVF_ON_OFF:
        return kvf_json_new_str(*(const bool *)at ? "on" : "off");
    default:
        text = kvf__option_word(o, r, &n);
        return kvf_json_new_strn(text ? text : "", text ? n : 0);
    }
}

kvf_status kvf__options_store(kvf_ctx *ctx, const kvf_train_options *options, kvf_json **out)
{
    kvf_json *object = kvf_json_object();
    bool good = object != NULL;
    const kvf__option *r;
    for (size_t i = 0; good && (r = kvf__option_at(i)) != NULL; i++)
        if (!(r->rules & KVF__LOCAL))
            good = kvf_json_set(object, r->row.name, value_of(options, r));
    if (!good) {
        kvf_json_free(object);
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    }
    *out = object;
    return KVF_OK;
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* Copies a stored value into the field. Returns false if its type does not match. */
static bool read_value(kvf_train_options *o, const kvf__option *r, const kvf_json *value)
{
    void *at = kvf__option_field(o, r);
    const char *text = kvf_json_str(value, NULL);
    switch (r->row.kind) {
    case KVF_COUNT:
    case KVF_POSITIVE:
    case KVF_OR_AUTO:
        *(int64_t *)at = kvf_json_int(value, -1);
        return *(int64_t *)at >= 0;
    case KVF_SEED:
        *(uint64_t *)at = (uint64_t)kvf_json_int(value, 0);
        return kvf_json_typeof(value) == KVF_JSON_INT;
    case KVF_AMOUNT:
    case KVF_ABOVE_0:
    case KVF_SHARE:
    case KVF_REAL:
        *(double *)at = kvf_json_real(value, NAN);
        return isfinite(*(double *)at);
    case KVF_FLAG:
        *(bool *)at = kvf_json_bool(value, false);
        return kvf_json_typeof(value) == KVF_JSON_BOOL;
    case KVF_TEXT:
        *(const char **)at = text;
        return text != NULL;
    default:
        return text && !kvf__option_set(&r->row, text, o);
    }
}

/* True for "auto" if the run has a value that auto may stand for. */
static bool leaves_open(const kvf_train_options *o, const kvf_train_options *was,
                        const kvf__option *r)
{
    if (r->row.offset == offsetof(kvf_train_options, precision))
        return o->precision == KVF_PRECISION_AUTO;
    return r->row.kind == KVF_OR_AUTO && o->batch_tokens < 0 && was->batch_tokens > 0;
}

kvf_status kvf__options_resume(kvf_ctx *ctx, const char *path, kvf_train_options *options,
                               const kvf_json *stored)
{
    const kvf_train_options defaults = kvf_train_defaults();
    const kvf__option *r;
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++) {
        if (r->rules & KVF__LOCAL) continue;
        const bool given = kvf__option_given(options, r) ||
                           !kvf__option_same(options, &defaults, r);
        if (given && r->rules & KVF__FREE) continue;
        kvf_train_options was = *options;
        if (!read_value(&was, r, kvf_json_get(stored, r->row.name)))
            return kvf__fail(ctx, KVF_EFORMAT, "%s: /options has no valid \"%s\"", path,
                             r->row.name);
        if (given && !leaves_open(options, &was, r) && !kvf__option_same(options, &was, r))
            return kvf__fail(ctx, KVF_EUSAGE,
                             "%s: --%s differs from that of the run; --resume cannot change it",
                             path, r->row.name);
        *options = was;
    }
    /* 0 means neurons alone, not the default */
    if (options->ffn_length && !options->prefix_length)
        kvf__option_mark(options, kvf__option_of(offsetof(kvf_train_options, prefix_length)));
    if (KVF__GIVEN(options, epochs) && !KVF__GIVEN(options, steps))
        options->steps = 0; /* may change on --resume */
    return KVF_OK;
}
