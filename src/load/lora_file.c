/* Reading LoRA folders of PEFT 0.21: adapter_config.json and adapter_model.safetensors (its
 * LoraConfig and LoraLayer; Hu et al., arXiv 2106.09685).
 *
 * An option is refused by name if it is set and not known to leave the sum W + alpha / r * B A
 * unchanged; so is a tensor that is not a factor. Either could change the model's output.
 * fan_in_fan_out can be ignored: the orientation of a weight follows from its layer, in PEFT
 * too. */
#include "arch.h"
#include "lora.h"
#include "pattern.h"

#include <math.h>
#include <string.h>

static const char CONFIG[] = "adapter_config.json", MODEL[] = "adapter_model.safetensors";
static const char ROOT[] = "base_model.model.", A[] = ".lora_A.weight", B[] = ".lora_B.weight";

typedef struct lora_file {
    kvf_ctx *ctx;
    char *config_path, *model_path;
    kvf_json *config;
    kvf__lora lora;
} lora_file;

/* ---- config ---------------------------------------------------------------------------------- */

/* Options that do not affect the sum, or are read below. */
static const char *const KNOWN[] = {
    "alpha_pattern",     "auto_mapping",    "base_model_name_or_path", "corda_config",
    "eva_config",        "exclude_modules", "fan_in_fan_out",          "inference_mode",
    "init_lora_weights", "layers_pattern",  "layers_to_transform",     "loftq_config",
    "lora_alpha",        "lora_dropout",    "lora_ga_config",          "megatron_core",
    "peft_type",         "peft_version",    "qalora_group_size",       "r",
    "rank_pattern",      "revision",        "runtime_config",          "target_modules",
    "task_type",         "use_rslora",
};

/* Initial values that leave the base unchanged. */
static const char *const STARTS[] = {"gaussian", "eva", "orthogonal"};

static bool listed(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

static bool is_unset(const kvf_json *value)
{
    switch (kvf_json_typeof(value)) {
    case KVF_JSON_BOOL:
        return !kvf_json_bool(value, true);
    case KVF_JSON_STRING:
        return !strcmp(kvf_json_str(value, NULL), "none") || !*kvf_json_str(value, NULL);
    case KVF_JSON_ARRAY:
    case KVF_JSON_OBJECT:
        return kvf_json_size(value) == 0;
    default:
        return kvf_json_typeof(value) <= KVF_JSON_NULL;
    }
}

static kvf_status check_known(const lora_file *f)
{
    for (void *it = kvf_json_iter(f->config); it; it = kvf_json_next(f->config, it)) {
        const char *key = kvf_json_iter_key(it);
        if (!listed(key, KNOWN, KVF__COUNT(KNOWN)) && !is_unset(kvf_json_iter_value(it)))
            return kvf__fail(f->ctx, KVF_EUNSUPPORTED,
                             "%s: \"%.60s\" is set, but only plain LoRA can be folded",
                             f->config_path, key);
    }
    return KVF_OK;
}

static kvf_status check_config(const lora_file *f)
{
    const char *type = kvf_json_str(kvf_json_get(f->config, "peft_type"), NULL);
    const char *start = kvf_json_str(kvf_json_get(f->config, "init_lora_weights"), NULL);

    if (!type || strcmp(type, "LORA") != 0)
        return kvf__fail(f->ctx, type ? KVF_EUNSUPPORTED : KVF_EFORMAT,
                         "%s: peft_type is %.60s, want LORA", f->config_path,
                         type ? type : "missing");
    KVF_TRY(check_known(f));
    if (!start || listed(start, STARTS, KVF__COUNT(STARTS))) return KVF_OK;
    return kvf__fail(f->ctx, KVF_EUNSUPPORTED,
                     "%s: init_lora_weights is \"%.60s\", which changes the base as well: convert "
                     "the adapter to plain LoRA when it is saved",
                     f->config_path, start);
}

static kvf_status get_number(const lora_file *f, const char *key, double *out)
{
    const double value = kvf__real_at(f->config, key);

    if (!isfinite(value))
        return kvf__fail(f->ctx, KVF_EFORMAT, "%s: \"%s\" is not a number", f->config_path, key);
    *out = value;
    return KVF_OK;
}

/* ---- modules --------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

static kvf_status unexpected(const lora_file *f, const char *name)
{
    return kvf__fail(f->ctx, KVF_EUNSUPPORTED,
                     "%s: tensor \"%.120s\": want only lora_A and lora_B of linear layers",
                     f->model_path, name);
}

/* Returns the other factor, with the same module name and this ending. */
static const kvf__view *factor_of(const lora_file *f, const char *name, const char *end)
{
    char full[256];
    int n = snprintf(full, sizeof full, "%s%s%s", ROOT, name, end);
    return n < (int)sizeof full ? kvf__table_find(&f->lora.weights.table, full) : NULL;
}

static kvf_status check_factors(const lora_file *f, const kvf__lora_module *m)
{
    const kvf__view *const factors[] = {m->a, m->b};
    char a[128], b[128];

    for (int i = 0; i < 2; i++)
        if (!kvf__dtype_is_float(factors[i]->dtype))
            return kvf__fail(f->ctx, KVF_EUNSUPPORTED, "%s: %s: type %s, want a float type",
                             f->model_path, m->name, kvf__view_type_name(factors[i]));
    if (m->a->rank == 2 && m->b->rank == 2 && m->a->dim[0] == m->b->dim[1] && m->a->dim[0] > 0 &&
        m->a->dim[1] > 0)
        return KVF_OK;
    return kvf__fail(f->ctx, KVF_ESHAPE,
                     "%s: %s: lora_A is %s and lora_B %s, want [r, in] and [out, r]", f->model_path,
                     m->name, kvf__shape_text(a, m->a->rank, m->a->dim),
                     kvf__shape_text(b, m->b->rank, m->b->dim));
}

/* Adds the module of a factor A; for a factor B checks that its A exists. */
static kvf_status add_module(lora_file *f, const kvf__tensor *tensor)
{
    const size_t root = sizeof ROOT - 1, end = sizeof A - 1;
    const bool is_a = ends_with(tensor->name, A);
    kvf__lora_module *m = &f->lora.modules[f->lora.n];
    char *name = NULL;

    if (strncmp(tensor->name, ROOT, root) != 0 || (!is_a && !ends_with(tensor->name, B)))
        return unexpected(f, tensor->name);
    KVF_TRY(kvf__strndup(f->ctx, tensor->name + root, strlen(tensor->name) - root - end, &name));
    const kvf__view *other = factor_of(f, name, is_a ? B : A);
    if (!other || !is_a) {
        kvf__free(name);
        return other
                   ? KVF_OK
                   : kvf__fail(f->ctx, KVF_EFORMAT, "%s: tensor \"%.120s\" has no matching lora_%s",
                               f->model_path, tensor->name, is_a ? "B" : "A");
    }
    *m = (kvf__lora_module){.name = name, .a = &tensor->view, .b = other};
    f->lora.n++;
    return check_factors(f, m);
}

static kvf_status add_modules(lora_file *f)
{
    const kvf__table *table = &f->lora.weights.table;

    KVF_TRY(kvf__alloc_array(f->ctx, table->n, sizeof *f->lora.modules, &f->lora.modules));
    for (size_t i = 0; i < table->n; i++)
        KVF_TRY(add_module(f, &table->items[i]));
    if (f->lora.n) return KVF_OK;
    return kvf__fail(f->ctx, KVF_EFORMAT, "%s: contains no lora_A and lora_B", f->model_path);
}

/* ---- scales ---------------------------------------------------------------------------------- */

static double *number_of(kvf__lora_module *m, bool rank)
{
    return rank ? &m->rank : &m->alpha;
}

/* Sets the value of modules without one whose name matches the key: at its end, from a dot or the
 * beginning on (PEFT's get_pattern_key). */
static kvf_status match_key(lora_file *f, const char *key, double value, bool rank)
{
    kvf__pattern *pattern = NULL;
    char *source = NULL;

    KVF_TRY(kvf__asprintf(f->ctx, &source, "^(.*\\.)?(%s)$", key));
    kvf_status st = kvf__pattern_regex(f->ctx, f->config_path, source, strlen(source), &pattern);
    for (size_t i = 0; i < f->lora.n && !st; i++) {
        double *number = number_of(&f->lora.modules[i], rank);
        bool matches = false;
        if (!isnan(*number)) continue;
        st = kvf__pattern_matches(f->ctx, pattern, f->lora.modules[i].name, &matches);
        if (matches) *number = value;
    }
    kvf__pattern_free(pattern);
    kvf__free(source);
    return st;
}

static kvf_status set_numbers(lora_file *f, const char *key, const char *patterns, bool rank)
{
    kvf_json *list = kvf_json_get(f->config, patterns);
    double usual = 0;

    KVF_TRY(get_number(f, key, &usual));
    for (size_t i = 0; i < f->lora.n; i++)
        *number_of(&f->lora.modules[i], rank) = NAN;
    for (void *it = kvf_json_iter(list); it; it = kvf_json_next(list, it)) {
        const double value = kvf_json_real(kvf_json_iter_value(it), NAN);
        if (!isfinite(value))
            return kvf__fail(f->ctx, KVF_EFORMAT, "%s: %s: \"%.60s\" is not a number",
                             f->config_path, patterns, kvf_json_iter_key(it));
        KVF_TRY(match_key(f, kvf_json_iter_key(it), value, rank));
    }
    for (size_t i = 0; i < f->lora.n; i++) {
        double *number = number_of(&f->lora.modules[i], rank);
        if (isnan(*number)) *number = usual;
    }
    return KVF_OK;
}

static kvf_status set_scales(lora_file *f)
{
    const bool root = kvf_json_bool(kvf_json_get(f->config, "use_rslora"), false);

    KVF_TRY(set_numbers(f, "r", "rank_pattern", true));
    KVF_TRY(set_numbers(f, "lora_alpha", "alpha_pattern", false));
    for (size_t i = 0; i < f->lora.n; i++) {
        kvf__lora_module *m = &f->lora.modules[i];
        if (m->rank != (double)m->a->dim[0])
            return kvf__fail(f->ctx, KVF_ESHAPE, "%s: %s: has rank %lld, but the config says %g",
                             f->model_path, m->name, (long long)m->a->dim[0], m->rank);
        m->scale = m->alpha / (root ? sqrt(m->rank) : m->rank);
    }
    return KVF_OK;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static kvf_status read_folder(lora_file *f, const char *dir)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;

    KVF_TRY(kvf__path_join(f->ctx, dir, CONFIG, &f->config_path));
    KVF_TRY(kvf__path_join(f->ctx, dir, MODEL, &f->model_path));
    KVF_TRY(kvf_json_load(f->ctx, f->config_path, &f->config));
    KVF_TRY(check_config(f));
    KVF_TRY(kvf__file_kind_of(f->ctx, dir, &kind)); /* reports a pickle */
    KVF_TRY(kvf__safetensors_open(f->ctx, f->model_path, &f->lora.weights));
    KVF_TRY(add_modules(f));
    return set_scales(f);
}

kvf_status kvf__lora_open(kvf_ctx *ctx, const char *dir, kvf__lora *out)
{
    lora_file f = {.ctx = ctx};

    kvf_status st = read_folder(&f, dir);
    kvf__free(f.config_path);
    kvf__free(f.model_path);
    kvf_json_free(f.config);
    KVF__GIVE(st, out, f.lora, kvf__lora_close(&f.lora));
    return st;
}

void kvf__lora_close(kvf__lora *lora)
{
    for (size_t i = 0; i < lora->n; i++)
        kvf__free(lora->modules[i].name);
    kvf__free(lora->modules);
    kvf__weights_close(&lora->weights);
    *lora = (kvf__lora){0};
}
