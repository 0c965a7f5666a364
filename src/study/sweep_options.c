/* Which of train's options a sweep has, and why not the others: one table for --help, the command
 * line, the lines of a grid and the check of each run. */
#include "method.h"
#include "sweep_int.h"

#include <string.h>

#define SHARED_BASE "the runs of a sweep share the base"
#define ONE_TASK    "a run of several tasks has no place in a sweep"
#define NO_BASE     "not in a sweep, where the base is not trained"
#define ONE_BASE    "the runs share one base"
#define ALL_RUNS    "it holds for all runs"

static const struct {
    const char *name, *why;
    bool common; /* only its value is one for all runs: not in a grid */
} ABSENT[] = {
    {"out", "a run's file is named after the run", false},
    {"log", "the runs would write to one file; --tensorboard has a folder for each", false},
    {"forecast", "not in a sweep", false},
    {"unfreeze", SHARED_BASE, false},
    {"base-lr", NO_BASE, false},
    {"base-dropout", "not in a sweep", false},
    {"prefix-dropout-per-row", "not in a sweep", false},
    {"infix", "not in a sweep", false},
    {"adapter-size", NO_BASE, false},
    {"adapter-activation", NO_BASE, false},
    {"adapter-norms", NO_BASE, false},
    {"adapter-placement", NO_BASE, false},
    {"task-prefix", ONE_TASK, false},
    {"mix", ONE_TASK, false},
    {"base", ONE_BASE, true},
    {"lora", ONE_BASE, true},
    {"precision", ONE_BASE, true},
    {"weight-dtype", ONE_BASE, true},
    {"stream-layers", ONE_BASE, true},
    {"resume", ALL_RUNS, true},
    {"force", ALL_RUNS, true},
    {"dry-run", ALL_RUNS, true},
    {"tensorboard", ALL_RUNS, true},
};

/* Methods but those that train what the runs share. */
#define CHOICE_KV(name)    "|" name
#define CHOICE_EMBED(name) "|" name
#define CHOICE_BLOCK(name)
#define CHOICE_NONE(name)
#define CHOICE(name, port, lr, beta1, folds_to, reads_base) CHOICE_##port(name)
#define CHOICES                                             (&("" KVF__METHOD_LIST(CHOICE))[1])

static const char *find_why(const char *name, bool common)
{
    for (size_t i = 0; i < sizeof ABSENT / sizeof ABSENT[0]; i++)
        if (!strcmp(ABSENT[i].name, name) && ABSENT[i].common == common) return ABSENT[i].why;
    return NULL;
}

const char *kvf__sweep_refusal(const char *name)
{
    return find_why(name, false);
}

const char *kvf__sweep_common(const char *name)
{
    return find_why(name, true);
}

const kvf__option_row *kvf__sweep_option_row(size_t index)
{
    static const kvf__option_row METHOD = {"method",
                                           CHOICES,
                                           "mlp",
                                           KVF_WORD,
                                           offsetof(kvf_train_options, method),
                                           "what is trained: see help methods"};
    const kvf__option_row *row;
    for (size_t i = 0; (row = kvf__train_option_row(i)) != NULL; i++) {
        if (kvf__sweep_refusal(row->name) || index--) continue;
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
        {o->forecast == KVF_FORECAST_ON, "forecast"},
        {o->unfreeze_base, "unfreeze"},
        {o->base_dropout > 0, "base-dropout"},
        {o->prefix_dropout_per_row, "prefix-dropout-per-row"},
        {o->infix, "infix"},
    };
    if (o->named_data.n) return kvf__fail(ctx, KVF_EUSAGE, "--data NAME=FILE: %s", ONE_TASK);
    if (!kvf__method_has_length(o->method))
        return kvf__fail(ctx, KVF_EUSAGE, "--method %s: %s", o->method, SHARED_BASE);
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++)
        if (FIELDS[i].is_set)
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: %s", FIELDS[i].name,
                             kvf__sweep_refusal(FIELDS[i].name));
    return KVF_OK;
}
