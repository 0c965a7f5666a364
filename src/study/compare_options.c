/* Which of train's options a comparison has, and why not the others: one table for --help, the
 * command line and the lines of an experiment; and the check of a row before anything is trained.
 */
#include "compare_hooks.h"

#include "base_int.h"
#include "option_table.h"
#include "train_options.h"

#include <string.h>

static const struct {
    const char *name, *why; /* why NULL: the comparison has an option of that name itself */
} ABSENT[] = {
    {"out", NULL},
    {"force", NULL},
    {"steps", NULL},
    {"eval-every", NULL},
    {"method", "a comparison has --methods A,B,..."},
    {"seed", "a comparison has --seeds N"},
    {"resume", "not in a comparison, whose runs begin anew"},
    {"dry-run", "not in a comparison, which checks all rows before it trains one"},
    {"forecast", "not in a comparison"},
    {"log", "the runs of a comparison would write to one file"},
    {"tensorboard", "the runs of a comparison would write to one folder"},
};

static bool is_absent(const char *name, const char **why)
{
    for (size_t i = 0; i < sizeof ABSENT / sizeof ABSENT[0]; i++)
        if (!strcmp(ABSENT[i].name, name)) {
            *why = ABSENT[i].why;
            return true;
        }
    return false;
}

const char *kvf__compare_refusal(const char *name)
{
    const char *why = NULL;
    return is_absent(name, &why) ? why : NULL;
}

const kvf__option_row *kvf__compare_option_row(size_t index)
{
    const kvf__option_row *row;
    const char *why;
    for (size_t i = 0; (row = kvf__train_option_row(i)) != NULL; i++)
        if (!is_absent(row->name, &why) && !index--) return row;
    return NULL;
}

kvf_status kvf__compare_check(kvf_ctx *ctx, const kvf_train_options *options)
{
    kvf_train_options checked = *options;
    KVF_TRY(kvf__train_options_require(ctx, &checked));
    KVF_TRY(kvf__train_options_imply(ctx, &checked));
    return kvf__train_options_check(ctx, &checked);
}
