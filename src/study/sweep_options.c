/* Which of train's options a sweep has, and why not the others: one table for --help, for the
 * command line, for the lines of a grid, and for what each run is checked by. */
#include "method.h"
#include "sweep_int.h"

#include <string.h>

#define SHARED_BASE "the runs of a sweep share the base"
#define ONE_TASK    "a run of several tasks has no place in a sweep"
#define NO_BASE     "not in a sweep, where the base is not trained"

static const struct {
    const char *name, *why;
} ABSENT[] = {
    {"out", "a run's file is named after the run"},
    {"log", "the runs would write to one file; --tensorboard has a folder for each"},
    {"forecast", "not in a sweep"},
    {"unfreeze", SHARED_BASE},
    {"base-lr", NO_BASE},
    {"base-dropout", "not in a sweep"},
    {"prefix-dropout-per-row", "not in a sweep"},
    {"infix", "not in a sweep"},
    {"adapter-size", NO_BASE},
    {"adapter-activation", NO_BASE},
    {"adapter-placement", NO_BASE},
    {"task-prefix", ONE_TASK},
    {"mix", ONE_TASK},
};

/* Methods but those that train what the runs share. */
#define CHOICE_KV(name)    "|" name
#define CHOICE_EMBED(name) "|" name
#define CHOICE_BLOCK(name)
#define CHOICE(name, port, lr, folds_to, reads_base) CHOICE_##port(name)
#define CHOICES                                      (&("" KVF__METHOD_LIST(CHOICE))[1])

const char *kvf_sweep_refusal(const char *name)
{
    for (size_t i = 0; i < sizeof ABSENT / sizeof ABSENT[0]; i++)
        if (!strcmp(ABSENT[i].name, name)) return ABSENT[i].why;
    return NULL;
}

const kvf_option_row *kvf_sweep_option_row(size_t index)
{
    static const kvf_option_row METHOD = {"method", CHOICES, "mlp",
                                          "what is trained: see help methods"};
    const kvf_option_row *row;
    for (size_t i = 0; (row = kvf_train_option_row(i)) != NULL; i++) {
        if (kvf_sweep_refusal(row->name) || index--) continue;
        return strcmp(row->name, METHOD.name) != 0 ? row : &METHOD;
    }
    return NULL;
}

/* What would change the base, or draws by rows of one run alone. */
kvf_status kvf__sweep_check_run(kvf_ctx *ctx, const kvf_train_options *o)
{
    const struct {
        bool is_set;
        const char *name;
    } FIELDS[] = {
        {o->log != NULL, "log"},
        {!strcmp(o->forecast, "on"), "forecast"},
        {!strcmp(o->unfreeze, "base"), "unfreeze"},
        {o->base_dropout > 0, "base-dropout"},
        {o->prefix_dropout_per_row, "prefix-dropout-per-row"},
        {o->infix, "infix"},
    };
    if (o->named_data.n) return kvf__fail(ctx, KVF_EUSAGE, "--data NAME=FILE: %s", ONE_TASK);
    if (kvf__method_find(o->method)->port == KVF__PORT_BLOCK)
        return kvf__fail(ctx, KVF_EUSAGE, "--method %s: %s", o->method, SHARED_BASE);
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++)
        if (FIELDS[i].is_set)
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: %s", FIELDS[i].name,
                             kvf_sweep_refusal(FIELDS[i].name));
    return KVF_OK;
}
