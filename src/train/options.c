/* The options of train as one table: command line, recipe files, --help, /options of the run file
 * and the check of --resume all read these rows. Adding an option is a field, a row and its use. */
#include "train_int.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { TEXT, CHOICE, FLAG, ON_OFF, COUNT, SEED, REAL } kind;

/* What a row means for a stored run. */
enum {
    LOCAL = 1, /* paths and what the caller wants this time: not stored */
    FREE = 2,  /* stored, but may change on --resume */
};

typedef struct row {
    kvf_option_row public;
    kind kind;
    size_t offset;
    unsigned rules;
} row;

#define AT(field) offsetof(kvf_train_options, field)

static const row ROWS[] = {
    {{"base", "PATH", "", "base model: Hugging Face folder or GGUF file"}, TEXT, AT(base), LOCAL},
    {{"data", "FILE", "", "training data, JSONL"}, TEXT, AT(data), LOCAL},
    {{"valid", "FILE", "", "held-out data for validation"}, TEXT, AT(valid), LOCAL},
    {{"out", "RUN.h5", "", "run file to write"}, TEXT, AT(out), LOCAL},
    {{"resume", NULL, "", "continue the run file named by --out"}, FLAG, AT(resume), LOCAL},
    {{"force", NULL, "", "replace an existing output"}, FLAG, AT(force), LOCAL},
    {{"dry-run", NULL, "", "load everything, say what would be done, and stop"},
     FLAG,
     AT(dry_run),
     LOCAL},
    {{"allow-other-base", NULL, "", "accept --init-kv and --init-from files made for another base"},
     FLAG,
     AT(allow_other_base),
     LOCAL},
    {{"method", "mlp|direct", "mlp", "what emits the prefix"}, CHOICE, AT(method), 0},
    {{"prefix-length", "N", "20", "virtual tokens P"}, COUNT, AT(prefix_length), 0},
    {{"encoder-hidden", "N", "512", "hidden width M of the mlp encoder"},
     COUNT,
     AT(encoder_hidden),
     0},
    {{"init", "vocab|random|zero|text|kv", "vocab",
      "starting prefix: K/V of random words, random weights, zeros, K/V of "
      "--init-text, a prefix file"},
     CHOICE,
     AT(init),
     0},
    {{"init-text", "TEXT", "", "text for --init text"}, TEXT, AT(init_text), 0},
    {{"init-kv", "FILE", "", "prefix file for --init kv"}, TEXT, AT(init_kv), LOCAL},
    {{"init-scheme", "torch|ptuning-v2", "torch", "distribution of random weights"},
     CHOICE,
     AT(init_scheme),
     0},
    {{"init-encoder", "FILE", "", "encoder weights, safetensors"}, TEXT, AT(init_encoder), LOCAL},
    {{"init-from", "FILE", "", "weights of a run or prefix file, without its optimizer"},
     TEXT,
     AT(init_from),
     LOCAL},
    {{"lr", "X", "by method", "learning rate; mlp and direct 0.01"}, REAL, AT(lr), 0},
    {{"lr-units", "prefix|parameter", "prefix",
      "prefix: a step moves K/V as far as it would move a direct prefix"},
     CHOICE,
     AT(lr_units),
     0},
    {{"steps", "N", "by epochs", "optimizer steps, counted from the start"},
     COUNT,
     AT(steps),
     FREE},
    {{"epochs", "N", "3", "passes over the data, unless --steps"}, COUNT, AT(epochs), FREE},
    {{"batch-size", "N", "8", "rows per step"}, COUNT, AT(batch_size), 0},
    {{"batch-tokens", "N", "off", "tokens per step instead of rows"}, COUNT, AT(batch_tokens), 0},
    {{"share-leads", "auto|off", "auto",
      "compute tokens that rows of a step begin with once (exact)"},
     CHOICE,
     AT(share_leads),
     0},
    {{"grad-accum", "N", "1", "parts in which a step's rows are computed, to save memory"},
     COUNT,
     AT(grad_accum),
     0},
    {{"recompute", "on|off", "off",
      "compute layers again for the backward pass instead of keeping what they leave: less memory, "
      "more "
      "time, the same bits"},
     ON_OFF,
     AT(recompute),
     FREE},
    {{"max-length", "N", "the model's", "longest row in tokens"}, COUNT, AT(max_length), 0},
    {{"overlong", "stop|truncate|skip", "stop", "what to do with longer rows"},
     CHOICE,
     AT(overlong),
     0},
    {{"shuffle", "on|off", "on", "new order of rows each epoch"}, ON_OFF, AT(shuffle), 0},
    {{"schedule", "linear|cosine|constant", "linear", "learning rate over time"},
     CHOICE,
     AT(schedule),
     0},
    {{"schedule-steps", "N", "--steps", "length of the schedule, fixed when the run is created"},
     COUNT,
     AT(schedule_steps),
     0},
    {{"warmup", "N|N%", "5%", "steps of warmup"}, TEXT, AT(warmup), 0},
    {{"weight-decay", "X", "0", "decoupled weight decay"}, REAL, AT(weight_decay), 0},
    {{"beta1", "X", "0.9", "AdamW"}, REAL, AT(beta1), 0},
    {{"beta2", "X", "0.999", "AdamW"}, REAL, AT(beta2), 0},
    {{"eps", "X", "1e-08", "AdamW"}, REAL, AT(eps), 0},
    {{"clip", "X", "1", "largest gradient norm; 0: no clipping"}, REAL, AT(clip), 0},
    {{"eval-every", "N", "epoch", "steps between validations"}, COUNT, AT(eval_every), FREE},
    {{"save-every", "N", "epoch", "steps between saves"}, COUNT, AT(save_every), FREE},
    {{"position-start", "P|0", "P", "position of a row's first token"},
     CHOICE,
     AT(position_start),
     0},
    {{"chat-template", "auto|none|chatml|llama3|mistral", "auto",
      "auto: for messages only; named: wraps prompts too"},
     CHOICE,
     AT(chat_template),
     0},
    {{"map", "OURS=THEIRS,...", "", "foreign field names: prompt=question,completion=answer"},
     TEXT,
     AT(map),
     0},
    {{"precision", "auto|f32|bf16", "auto", "auto: bf16 where a probe finds it 1.25x faster"},
     CHOICE,
     AT(precision),
     0},
    {{"seed", "N", "0", "of initialisation and order"}, SEED, AT(seed), 0},
};
#define N_ROWS (sizeof ROWS / sizeof ROWS[0])

kvf_train_options kvf_train_defaults(void)
{
    return (kvf_train_options){
        .method = "mlp",
        .prefix_length = 20,
        .encoder_hidden = 512,
        .init = "vocab",
        .init_scheme = "torch",
        .lr_units = "prefix",
        .epochs = 3,
        .batch_size = 8,
        .grad_accum = 1,
        .overlong = "stop",
        .shuffle = true,
        .share_leads = "auto",
        .schedule = "linear",
        .warmup = "5%",
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .clip = 1,
        .position_start = "P",
        .chat_template = "auto",
        .precision = "auto",
    };
}

const kvf_option_row *kvf_train_option_row(size_t index)
{
    return index < N_ROWS ? &ROWS[index].public : NULL;
}

static const row *find_row(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (!strcmp(ROWS[i].public.name, name)) return &ROWS[i];
    return NULL;
}

static void *field(const kvf_train_options *options, const row *r)
{
    return (char *)options + r->offset;
}

/* Is `value` one of "a|b|c"? */
static bool is_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (!strncmp(at, value, n) && (at[n] == '|' || !at[n])) return true;
    return false;
}

static kvf_status bad_value(kvf_ctx *ctx, const row *r, const char *value, const char *want)
{
    return kvf__fail(ctx, KVF_EUSAGE, "--%s \"%s\": want %s", r->public.name, value, want);
}

static kvf_status set_count(kvf_ctx *ctx, const row *r, const char *value, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < 0 || number > INT32_MAX)
        return bad_value(ctx, r, value, "a whole number from 0 to 2147483647");
    *out = number;
    return KVF_OK;
}

static kvf_status set_seed(kvf_ctx *ctx, const row *r, const char *value, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (errno || end == value || *end || *value == '-' || number > INT64_MAX)
        return bad_value(ctx, r, value, "a whole number from 0 to 9223372036854775807");
    *out = number;
    return KVF_OK;
}

static kvf_status set_real(kvf_ctx *ctx, const row *r, const char *value, double *out)
{
    char *end = NULL;
    errno = 0;
    double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number) || number < 0)
        return bad_value(ctx, r, value, "a number from 0 on");
    *out = number;
    return KVF_OK;
}

static kvf_status set_flag(kvf_ctx *ctx, const row *r, const char *value, const char *yes,
                           const char *no, bool *out)
{
    if (!value || !strcmp(value, yes)) {
        *out = true;
        return KVF_OK;
    }
    if (strcmp(value, no))
        return bad_value(ctx, r, value, r->kind == FLAG ? "true or false" : "on or off");
    *out = false;
    return KVF_OK;
}

kvf_status kvf_train_set(kvf_ctx *ctx, kvf_train_options *options, const char *name,
                         const char *value)
{
    const row *r = find_row(name);
    if (!r) return kvf__fail(ctx, KVF_EUSAGE, "option --%s is not known", name);
    void *at = field(options, r);
    if (r->kind == FLAG) return set_flag(ctx, r, value, "true", "false", at);
    if (!value)
        return kvf__fail(ctx, KVF_EUSAGE, "--%s needs a value: %s", name, r->public.argument);
    options->given |= UINT64_C(1) << (r - ROWS);
    switch (r->kind) {
    case COUNT:
        return set_count(ctx, r, value, at);
    case SEED:
        return set_seed(ctx, r, value, at);
    case REAL:
        return set_real(ctx, r, value, at);
    case ON_OFF:
        return set_flag(ctx, r, value, "on", "off", at);
    case CHOICE:
        if (!is_choice(r->public.argument, value))
            return bad_value(ctx, r, value, r->public.argument);
        break;
    default:
        break;
    }
    *(const char **)at = value;
    return KVF_OK;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static kvf_status check_init(kvf_ctx *ctx, const kvf_train_options *o)
{
    if (!strcmp(o->init, "text") && !(o->init_text && *o->init_text))
        return kvf__fail(ctx, KVF_EUSAGE, "--init text needs --init-text");
    if (!strcmp(o->init, "kv") && !o->init_kv)
        return kvf__fail(ctx, KVF_EUSAGE, "--init kv needs --init-kv");
    if (o->init_encoder && o->init_from)
        return kvf__fail(ctx, KVF_EUSAGE, "--init-encoder and --init-from exclude each other");
    return KVF_OK;
}

kvf_status kvf__train_options_require(kvf_ctx *ctx, const kvf_train_options *o)
{
    if (!o->base) return kvf__fail(ctx, KVF_EUSAGE, "--base is needed");
    if (!o->data) return kvf__fail(ctx, KVF_EUSAGE, "--data is needed");
    if (!o->out) return kvf__fail(ctx, KVF_EUSAGE, "--out is needed");
    return KVF_OK;
}

/* Values of CHOICE rows, for callers that fill the struct themselves. */
static kvf_status check_choices(kvf_ctx *ctx, const kvf_train_options *o)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (ROWS[i].kind != CHOICE) continue;
        const char *value = *(const char **)field(o, &ROWS[i]);
        if (!value || !is_choice(ROWS[i].public.argument, value))
            return bad_value(ctx, &ROWS[i], value ? value : "", ROWS[i].public.argument);
    }
    return KVF_OK;
}

kvf_status kvf__train_options_check(kvf_ctx *ctx, kvf_train_options *o)
{
    KVF_TRY(check_choices(ctx, o));
    KVF_TRY(check_init(ctx, o));
    if (o->prefix_length < 1)
        return kvf__fail(ctx, KVF_EUSAGE, "--prefix-length must be at least 1");
    if (!o->batch_size && !o->batch_tokens)
        return kvf__fail(ctx, KVF_EUSAGE, "--batch-size must be at least 1");
    if (o->grad_accum < 1) return kvf__fail(ctx, KVF_EUSAGE, "--grad-accum must be at least 1");
    if (!o->steps && !o->epochs)
        return kvf__fail(ctx, KVF_EUSAGE, "--steps or --epochs must be at least 1");
    if (!(o->beta1 < 1) || !(o->beta2 < 1))
        return kvf__fail(ctx, KVF_EUSAGE, "--beta1 and --beta2 must be below 1");
    if (!(o->lr > 0)) o->lr = kvf__encoder_default_lr(o->method);
    return KVF_OK;
}

/* ---- storing --------------------------------------------------------------------------------- */

static kvf_json *value_of(const kvf_train_options *o, const row *r)
{
    const void *at = field(o, r);
    switch (r->kind) {
    case COUNT:
        return kvf_json_new_int(*(const int64_t *)at);
    case SEED:
        return kvf_json_new_int((int64_t) * (const uint64_t *)at);
    case REAL:
        return kvf_json_new_real(*(const double *)at);
    case ON_OFF:
        return kvf_json_new_str(*(const bool *)at ? "on" : "off");
    default:
        return kvf_json_new_str(*(const char *const *)at ? *(const char *const *)at : "");
    }
}

kvf_status kvf__train_options_store(kvf_ctx *ctx, const kvf_train_options *options, kvf_json **out)
{
    kvf_json *object = kvf_json_object();
    bool good = object != NULL;
    for (size_t i = 0; good && i < N_ROWS; i++)
        if (!(ROWS[i].rules & LOCAL))
            good = kvf_json_set(object, ROWS[i].public.name, value_of(options, &ROWS[i]));
    if (!good) {
        kvf_json_free(object);
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    }
    *out = object;
    return KVF_OK;
}

static bool same_value(const kvf_train_options *a, const kvf_train_options *b, const row *r)
{
    const void *x = field(a, r), *y = field(b, r);
    switch (r->kind) {
    case COUNT:
        return *(const int64_t *)x == *(const int64_t *)y;
    case SEED:
        return *(const uint64_t *)x == *(const uint64_t *)y;
    case REAL:
        return *(const double *)x == *(const double *)y;
    case FLAG:
    case ON_OFF:
        return *(const bool *)x == *(const bool *)y;
    default:
        break;
    }
    const char *s = *(const char *const *)x, *t = *(const char *const *)y;
    return !strcmp(s ? s : "", t ? t : "");
}

/* Puts a stored value into the field; false if its type is not the row's. */
static bool take_value(kvf_train_options *o, const row *r, const kvf_json *value)
{
    void *at = field(o, r);
    const char *text = kvf_json_str(value, NULL);
    switch (r->kind) {
    case COUNT:
        *(int64_t *)at = kvf_json_int(value, -1);
        return *(int64_t *)at >= 0;
    case SEED:
        *(uint64_t *)at = (uint64_t)kvf_json_int(value, 0);
        return kvf_json_typeof(value) == KVF_JSON_INT;
    case REAL:
        *(double *)at = kvf_json_real(value, -1);
        return *(double *)at >= 0;
    case ON_OFF:
        *(bool *)at = text && !strcmp(text, "on");
        return text != NULL;
    default:
        *(const char **)at = text;
        return text != NULL;
    }
}

static bool was_given(const kvf_train_options *options, const char *name)
{
    return options->given >> (find_row(name) - ROWS) & 1;
}

kvf_status kvf__train_options_resume(kvf_ctx *ctx, const char *path, kvf_train_options *options,
                                     const kvf_json *stored)
{
    const kvf_train_options defaults = kvf_train_defaults();
    for (size_t i = 0; i < N_ROWS; i++) {
        const row *r = &ROWS[i];
        if (r->rules & LOCAL) continue;
        bool given = was_given(options, r->public.name) || !same_value(options, &defaults, r);
        if (given && r->rules & FREE) continue;
        kvf_train_options was = *options;
        if (!take_value(&was, r, kvf_json_get(stored, r->public.name)))
            return kvf__fail(ctx, KVF_EFORMAT, "%s: /options has no usable \"%s\"", path,
                             r->public.name);
        bool automatic = r->offset == AT(precision) && !strcmp(options->precision, "auto");
        if (given && !automatic && !same_value(options, &was, r))
            return kvf__fail(
                ctx, KVF_EUSAGE,
                "%s: --%s was another when the run was created; --resume cannot change it", path,
                r->public.name);
        *options = was;
    }
    if (was_given(options, "epochs") && !was_given(options, "steps"))
        options->steps = 0; /* decided anew */
    return KVF_OK;
}
