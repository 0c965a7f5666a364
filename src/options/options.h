/* The options of a run. One table (option_rows.c) has a row for each: name, type, default and help.
 * The row also lists the methods, tasks and bases that support the option, what it needs and
 * excludes, and the commands that accept it. Setting, checking, storing, comparing on --resume,
 * help, recipes, sweeps and comparisons all read that table. No other file has a rule about a
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
    KVF__DISTILL = 4,    /* also an option of distill */
    KVF__UNSET = 8,      /* help describes the default; the field starts at `unset` */
    KVF__ONE_TASK = 16,  /* not with --data NAME=FILE */
    KVF__TASKS = 32,     /* only with --data NAME=FILE */
    KVF__CAUSAL = 64,    /* only for causal bases */
    KVF__STACKS = 128,   /* only for encoder-decoders */
    KVF__ONE_STACK = 256 /* for all bases except encoder-decoders */
};

/* A condition is "NAME", true if the option has a value other than its default, or "NAME=VALUE".
 * Bars separate alternatives. */
typedef struct kvf__option {
    kvf__option_row row; /* name, type and help of a field of kvf_train_options */
    unsigned rules;
    double unset;                         /* initial number with KVF__UNSET; texts start at NULL */
    void (*decide)(kvf_train_options *o); /* sets a default that depends on method or task */
    const char *methods, *tasks;          /* methods and tasks that support the option, as "a|b";
                                           * NULL: all */
    const char *needs;                    /* conditions, one of which must hold */
    const char *excludes;                 /* conditions, none of which may hold */
    const char *sweep;                    /* reason why a sweep does not accept it; NULL: accepted
                                           */
    /* the same for a comparison; "": compare has its own option of this name */
    const char *compare;
    const char *shared; /* reason why runs of a sweep cannot differ in it; NULL: they can */
} kvf__option;

/* Returns the option at an index, or NULL past the last. */
const kvf__option *kvf__option_at(size_t index);
/* Returns NULL for an unknown name. */
const kvf__option *kvf__option_find(const char *name);
static inline void *kvf__option_field(const kvf_train_options *options, const kvf__option *row)
{
    return (char *)options + row->row.offset;
}

/* True if the option was set by kvf_train_set(). The macro takes a field, so that an unknown option
 * does not compile. */
#define KVF__GIVEN(options, field)                                                                 \
    kvf__option_given(options, kvf__option_of(offsetof(kvf_train_options, field)))
bool kvf__option_given(const kvf_train_options *options, const kvf__option *row);
const kvf__option *kvf__option_of(size_t offset);
/* Marks the option as set. */
void kvf__option_mark(kvf_train_options *options, const kvf__option *row);
/* True if the field has the same value in both. */
bool kvf__option_same(const kvf_train_options *a, const kvf_train_options *b,
                      const kvf__option *row);
/* Returns the text of an option, or the name of its choice, and its length in *n. Returns NULL for
 * a value without a name and for other kinds. */
const char *kvf__option_word(const kvf_train_options *options, const kvf__option *row, size_t *n);

/* Checks that the paths needed by every run are given. EUSAGE. */
kvf_status kvf__options_require(kvf_ctx *ctx, const kvf_train_options *options);
/* Checks values against the table and each other, and sets defaults that depend on method and task.
 * EUSAGE. */
kvf_status kvf__options_check(kvf_ctx *ctx, kvf_train_options *options);
/* Checks options that only some bases support. `name` is the base's architecture. EUSAGE. */
kvf_status kvf__options_check_base(kvf_ctx *ctx, const kvf_train_options *options, bool causal,
                                   bool encoder_decoder, const char *name);
/* Refuses options that sweep or distill do not accept. EUSAGE. */
kvf_status kvf__options_check_sweep(kvf_ctx *ctx, const kvf_train_options *options);
kvf_status kvf__options_check_distill(kvf_ctx *ctx, const kvf_train_options *options);
/* Sets --init of a new run if --init-text or --init-kv imply it. EUSAGE if they contradict it. */
kvf_status kvf__options_imply(kvf_ctx *ctx, kvf_train_options *options);

/* Stores the options that affect the result as an object of scalars, without paths. */
kvf_status kvf__options_store(kvf_ctx *ctx, const kvf_train_options *options, kvf_json **out);
/* Copies the stored values of a resumed run. EUSAGE names the first given option that differs.
 * Texts are borrowed from `stored`. */
kvf_status kvf__options_resume(kvf_ctx *ctx, const char *path, kvf_train_options *options,
                               const kvf_json *stored);

/* ---- values of several options --------------------------------------------------------------- */

/* Returns the length of the task name at the start of the text. */
size_t kvf__task_name_length(const char *text);
/* Returns the value for the task named by `item` ("NAME=..."), or NULL. */
const char *kvf__named_value(const kvf_named *list, const char *item);
/* Returns the kind of task i of --data NAME=FILE. */
const char *kvf__named_kind(const kvf_train_options *options, size_t i);
/* True if the run has a task of one of these kinds, as "a|b". */
bool kvf__options_have_task(const kvf_train_options *options, const char *kinds);
#define KVF__MOST_START_MASS 1e4 /* limit of |--start-mass| */
/* Parses --position-start: "P" or a number. EUSAGE. */
kvf_status kvf__position_parse(kvf_ctx *ctx, const char *text, int64_t P, int64_t *out);
/* Parses --keep-states: "2G", "500M", "64K" or "0" to bytes; "off", NULL and "" to -1. EUSAGE. */
kvf_status kvf__states_size(kvf_ctx *ctx, const char *text, int64_t *out);

#endif
