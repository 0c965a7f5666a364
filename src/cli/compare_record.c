/* Records of kvfold compare, DIR/NAME.json: the arguments of a run, and once they exist the results
 * of train and merge. --resume reads finished runs back, and refuses other arguments. */
#include "cli_compare.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kvf_json *arguments_json(const cli_arguments *a)
{
    kvf_json *list = kvf_json_array();
    for (size_t i = 2; i < a->n; i++)
        kvf_json_add(list, kvf_json_new_str(a->at[i]));
    return list;
}

static int write_record(const cli_comparison *c, const cli_compare_cell *cell,
                        const kvf_json *record)
{
    char *text = kvf_json_text(record, KVF_JSON_COMPACT);
    if (!text) return cli_fail(c->call->command, "out of memory");
    const kvf_status st = kvf__write_file(c->call->ctx, cell->record, true, text, strlen(text));
    kvf_json_text_free(text);
    return st ? cli_fail_status(c->call, st) : CLI_OK;
}

/* Refuses a record with arguments that differ from those of the new run. */
static int check_arguments(const cli_comparison *c, const cli_compare_cell *cell,
                           const kvf_json *was, const kvf_json *now)
{
    for (size_t i = 0; i < kvf_json_size(was) || i < kvf_json_size(now); i++) {
        const char *a = kvf_json_str(kvf_json_at(was, i), NULL),
                   *b = kvf_json_str(kvf_json_at(now, i), NULL);
        if (a && b && !strcmp(a, b)) continue;
        return cli_misuse(c->call->command, "%s: --resume: the run had %s, not %s", cell->record,
                          a ? a : "fewer options", b ? b : "fewer options");
    }
    return CLI_OK;
}

static bool is_newer(const char *path, const struct timespec *than)
{
    struct stat info;
    if (stat(path, &info)) return false;
    const struct timespec *t = &info.st_mtim;
    return t->tv_sec > than->tv_sec || (t->tv_sec == than->tv_sec && t->tv_nsec > than->tv_nsec);
}

/* Checks that no input is the record. *newer: an input was written after the record. */
static int check_inputs(const cli_comparison *c, const cli_compare_cell *cell, bool *newer)
{
    const cli_call *call = c->call;
    struct stat own;
    const bool exists = !stat(cell->record, &own);
    for (size_t i = 0; i < call->n_given; i++) {
        const char *value = call->given[i].value, *equals = value ? strchr(value, '=') : NULL;
        if (!value || !strcmp(call->given[i].name, "out")) continue;
        if (kvf__check_not_input(call->ctx, cell->record, value))
            return cli_fail_status(call, KVF_EUSAGE);
        if (exists)
            *newer |= is_newer(value, &own.st_mtim) ||
                      (equals && is_newer(equals + 1, &own.st_mtim));
    }
    return CLI_OK;
}

/* Removes results whose files are missing or older than an input: train and merge then decide. */
static void drop_stale(const cli_compare_cell *cell, bool newer, kvf_json *record)
{
    const bool stale = newer || access(cell->run, R_OK);
    if (stale) kvf_json_remove(record, "trained");
    if (stale || access(cell->folded, R_OK)) kvf_json_remove(record, "merged");
}

int cli_record_open(const cli_comparison *c, const cli_compare_cell *cell, const cli_arguments *a,
                    kvf_json **out)
{
    const cli_compare_values *v = c->values;
    kvf_json *record = kvf_json_object(), *before = NULL;
    bool newer = false;
    kvf_json_set(record, "arguments", arguments_json(a));
    int code = check_inputs(c, cell, &newer);
    if (!code && v->resume && !access(cell->record, R_OK) &&
        !kvf_json_load(c->call->ctx, cell->record, &before)) {
        code = check_arguments(c, cell, kvf_json_get(before, "arguments"),
                               kvf_json_get(record, "arguments"));
        drop_stale(cell, newer, before);
        kvf_json_free(record);
        record = before;
    }
    *out = record;
    const bool replaces = v->resume || v->force;
    /* train refuses an old run, whose record stays */
    if (code || before || (!replaces && !access(cell->run, F_OK))) return code;
    const kvf_status st = kvf__check_output(c->call->ctx, cell->record, replaces);
    return st ? cli_fail_status(c->call, st) : write_record(c, cell, record);
}

int cli_record_put(const cli_comparison *c, const cli_compare_cell *cell, kvf_json *record,
                   const char *key, kvf_json *value)
{
    if (!value) return CLI_OK;
    kvf_json_set(record, key, value);
    return write_record(c, cell, record);
}
