/* kvfold diff. Exit status as of diff(1): 0 equal, 1 different, 2 error. */
#include "cli_int.h"

#include <stddef.h>
#include <stdint.h>

typedef struct diff_values {
    bool tensors_only;
} diff_values;

static const kvf__option_row OPTIONS[] = {
    {"tensors-only", NULL, "", KVF_FLAG, offsetof(diff_values, tensors_only),
     "compare tensors alone, not attributes, options and lineage"},
};
enum { DIFFERENT = 1, SHAPE_BYTES = 400 };

static void print_value(const kvf_json *value)
{
    char *text = value ? kvf_json_text(value, KVF_JSON_COMPACT) : NULL;
    cli_print_safe(!value ? "-" : text ? text : "?", SIZE_MAX);
    kvf_json_text_free(text);
}

static void print_facts(const kvf_json *facts)
{
    for (size_t i = 0; i < kvf_json_size(facts); i++) {
        const kvf_json *fact = kvf_json_at(facts, i);
        cli_print_safe(kvf__text_at(fact, "group"), SIZE_MAX);
        putchar('.');
        cli_print_safe(kvf__text_at(fact, "name"), SIZE_MAX);
        printf(": ");
        print_value(kvf_json_get(fact, "a"));
        printf(" | ");
        print_value(kvf_json_get(fact, "b"));
        putchar('\n');
    }
}

static void print_tensor(const kvf_json *tensor)
{
    char shape[SHAPE_BYTES];
    cli_print_safe(kvf__text_at(tensor, "name"), SIZE_MAX);
    printf(" %s %s", cli_shape_at(tensor, shape, sizeof shape), kvf__text_at(tensor, "dtype"));
}

static void print_changed(const kvf_json *changed)
{
    for (size_t i = 0; i < kvf_json_size(changed); i++) {
        const kvf_json *tensor = kvf_json_at(changed, i);
        const kvf_json *shape = kvf_json_get(tensor, "shape_b");
        const char *dtype = kvf_json_str(kvf_json_get(tensor, "dtype_b"), NULL);
        print_tensor(tensor);
        if (shape || dtype) printf(" | ");
        if (shape) print_value(shape);
        if (dtype) printf("%s%s", shape ? " " : "", dtype);
        if (kvf_json_get(tensor, "max_abs"))
            printf(": max %g, relative %.3g, cosine %.9g", kvf__real_at(tensor, "max_abs"),
                   kvf__real_at(tensor, "relative_l2"), kvf__real_at(tensor, "cosine"));
        putchar('\n');
    }
}

static void print_only(const kvf_json *tensors, const char *path)
{
    for (size_t i = 0; i < kvf_json_size(tensors); i++) {
        printf("only in %s: ", path);
        print_tensor(kvf_json_at(tensors, i));
        putchar('\n');
    }
}

/* Prints the differences; nothing if the files are equal, like diff(1). */
static void print_text(const cli_call *call, const kvf_json *found)
{
    const kvf_json *tensors = kvf_json_get(found, "tensors");
    const kvf_json *changed = kvf_json_get(tensors, "changed");
    const kvf_json *removed = kvf_json_get(tensors, "removed");
    const kvf_json *added = kvf_json_get(tensors, "added");
    if (kvf_json_bool(kvf_json_get(found, "same"), false)) return;
    print_facts(kvf_json_get(found, "facts"));
    print_changed(changed);
    print_only(removed, call->operands[0]);
    print_only(added, call->operands[1]);
    printf("tensors: %lld equal, %zu changed, %zu and %zu in one file only\n",
           kvf__int_at(tensors, "equal"), kvf_json_size(changed), kvf_json_size(removed),
           kvf_json_size(added));
}

static int run(cli_call *call)
{
    diff_values v = {0};
    kvf_json *found = NULL;
    int code = cli_set_values(call, &v);
    if (code) return code;
    kvf_status st = kvf_diff(call->ctx, call->operands[0], call->operands[1], v.tensors_only, NULL,
                             &found);
    if (st) return cli_fail_status(call, st);
    code = kvf_json_bool(kvf_json_get(found, "same"), false) ? CLI_OK : DIFFERENT;
    if (call->common.json) {
        int printed = cli_print_json(call, found);
        return printed ? printed : code;
    }
    print_text(call, found);
    kvf_json_free(found);
    return code;
}

const cli_command cli_diff = {
    .name = "diff",
    .group = CLI_LOOK,
    .synopsis = "A B [options]",
    .summary = "Compares two files of one kind: attributes, options, lineage and tensors.",
    .notes = "Accepts all files that inspect reads. Prefixes are compared by layer, int8 by its "
             "dequantized values. Exit status as of diff(1): 0 equal, 1 different, 2 error.\n",
    CLI_ROWS(OPTIONS),
    .operands = 2,
    .failure = CLI_MISUSE,
    .run = run,
};
