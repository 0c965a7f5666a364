/* The options of a run. One table (option_rows.c) has a row for each: name, type, default, methods,
 * tasks and bases it is for, what it needs and excludes, and which commands take it. Setting,
 * checking, storing, comparing on
 * --resume, help, recipes, sweeps and comparisons read that table; no other file has a rule about a
 * single option. */
#ifndef KVF_OPTIONS_H
#define KVF_OPTIONS_H

#include "option_table.h"

#include <kvfold/json.h>
#include <kvfold/train.h>

/* Properties of a row. */
enum {
    KVF__LOCAL = 1,      /* a path, or a choice for this call: not stored in the run file */
    KVF__FREE = 2,       /* stored, and may change on --resume */
    KVF__DISTILL = 4,    /* an option of distill, too */
    KVF__UNSET = 8,      /* help describes the default; the field starts at `unset` */
    KVF__ONE_TASK = 16,  /* not with --data NAME=FILE */
    KVF__TASKS = 32,     /* only with --data NAME=FILE */
    KVF__CAUSAL = 64,    /* for causal bases */
    KVF__STACKS = 128,   /* for encoder-decoders */
    KVF__ONE_STACK = 256 /* for all other bases */
};

/* A condition is "NAME", true if the option has a value other than its default, or "NAME=VALUE".
 * Bars separate alternatives. */
typedef struct kvf__option {
    kvf__option_row row; /* of a field of kvf_train_options */
    unsigned rules;
    double unset;                         /* of a number with KVF__UNSET; texts start at NULL */
    void (*decide)(kvf_train_options *o); /* the default where method or task decide it */
    const char *methods, *tasks;          /* alternatives that the option is for; NULL: all */
    const char *needs;                    /* one of these conditions must hold */
    const char *excludes;                 /* none of these may hold */
    const char *sweep;                    /* why a sweep does not have it; NULL: it has */
    const char
        *compare;       /* the same for a comparison; "": which has an option of this name itself */
    const char *shared; /* why runs of a sweep cannot differ in it; NULL: they can */
} kvf__option;

/* NULL past the last. */
const kvf__option *kvf__option_at(size_t index);
/* NULL: there is no such option. */
const kvf__option *kvf__option_find(const char *name);
static inline void *kvf__option_field(const kvf_train_options *options, const kvf__option *row)
{
    return (char *)options + row->row.offset;
}

/* True if the option was set by kvf_train_set(). The option is named by its field, so that an
 * unknown one does not compile. */
#define KVF__GIVEN(options, field)                                                                 \
    kvf__option_given(options, kvf__option_of(offsetof(kvf_train_options, field)))
bool kvf__option_given(const kvf_train_options *options, const kvf__option *row);
const kvf__option *kvf__option_of(size_t offset);
/* Marks the option as set. */
void kvf__option_mark(kvf_train_options *options, const kvf__option *row);
/* True if the field has the same value in both. */
bool kvf__option_same(const kvf_train_options *a, const kvf_train_options *b,
                      const kvf__option *row);
/* The text, or the name of the value of a choice: *n bytes. NULL: no such value, or another kind.
 */
const char *kvf__option_word(const kvf_train_options *options, const kvf__option *row, size_t *n);

/* Checks that the paths that every run needs are given. EUSAGE. */
kvf_status kvf__options_require(kvf_ctx *ctx, const kvf_train_options *options);
/* Checks values against the table and against each other, and decides defaults that depend on
 * method and task. EUSAGE. */
kvf_status kvf__options_check(kvf_ctx *ctx, kvf_train_options *options);
/* Checks the options that are for some bases only. `name` is the base's architecture. EUSAGE. */
kvf_status kvf__options_check_base(kvf_ctx *ctx, const kvf_train_options *options, bool causal,
                                   bool encoder_decoder, const char *name);
/* Refuses options that a sweep, or a distillation, does not have. EUSAGE. */
kvf_status kvf__options_check_sweep(kvf_ctx *ctx, const kvf_train_options *options);
kvf_status kvf__options_check_distill(kvf_ctx *ctx, const kvf_train_options *options);
/* Resolves --init of a new run: --init-text and --init-kv imply it. EUSAGE if --init is another. */
kvf_status kvf__options_imply(kvf_ctx *ctx, kvf_train_options *options);

/* Stores the options that decide the result: an object of scalars, without paths. */
kvf_status kvf__options_store(kvf_ctx *ctx, const kvf_train_options *options, kvf_json **out);
/* Takes over the stored values of a run that is resumed. EUSAGE names the first option that was
 * given and differs. Texts are borrowed from `stored`. */
kvf_status kvf__options_resume(kvf_ctx *ctx, const char *path, kvf_train_options *options,
                               const kvf_json *stored);

/* ---- values of several options --------------------------------------------------------------- */

/* Length of the task name that the text begins with. */
size_t kvf__task_name_length(const char *text);
/* The value for the task that `item` ("NAME=...") names; NULL: the list has none. */
const char *kvf__named_value(const kvf_named *list, const char *item);
/* The kind of task i of --data NAME=FILE. */
const char *kvf__named_kind(const kvf_train_options *options, size_t i);
/* True if one of the run's tasks is of one of these kinds, alternatives "a|b". */
bool kvf__options_have_task(const kvf_train_options *options, const char *kinds);
#define KVF__MOST_START_MASS 1e4 /* of --start-mass, either way */
/* Parses --position-start: "P" or a number. EUSAGE. */
kvf_status kvf__position_parse(kvf_ctx *ctx, const char *text, int64_t P, int64_t *out);
/* Parses --keep-states: bytes of "2G", "500M", "64K" or "0"; -1 for "off", NULL and "". EUSAGE. */
kvf_status kvf__states_size(kvf_ctx *ctx, const char *text, int64_t *out);

#endif
