/* Options by name, for the command and src/train. A row of a table describes one option: its name,
 * which values it accepts, what help shows of it, and the field of an options struct that it sets.
 * The command line, recipes, sweep grids, completion and manual pages are made from such rows;
 * kvf_train_set() and its table are the largest example.
 *
 *     const kvf__option_row seed = {"seed", "N", "0", KVF_SEED,
 *                                  offsetof(kvf_generate_options, seed), "of the draws"};
 *     kvf_generate_options options = kvf_generate_defaults();
 *     const char *want = kvf__option_set(&seed, "7", &options);
 *     if (want) fprintf(stderr, "--seed \"7\": want %s\n", want); */
#ifndef KVF_OPTION_TABLE_H
#define KVF_OPTION_TABLE_H

#include <kvfold/train.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The type of the field and its accepted values. */
typedef enum kvf__option_kind {
    KVF_NO_FIELD, /* the program handles the option itself */
    KVF_FLAG,     /* bool: true (also NULL) or false */
    KVF_ON_OFF,   /* bool: on or off */
    KVF_EITHER,   /* bool: true for the second of the argument's two alternatives */
    KVF_TEXT,     /* const char *, borrowed */
    KVF_TEXTS,    /* kvf__strings: each use appends one */
    KVF_WORD,     /* const char *, borrowed: one of the argument's alternatives */
    KVF_CHOICE,   /* an enum: the index of the value among the argument's alternatives */
    KVF_CHOICE_1, /* an enum from 1: 0 means not given */
    KVF_COUNT,    /* int64_t, 0 to 2^31 - 1 */
    KVF_OR_AUTO,  /* int64_t, 0 to 2^31 - 1, or auto: -1 */
    KVF_POSITIVE, /* int64_t, 1 to 2^31 - 1 */
    KVF_SEED,     /* uint64_t, 0 to 2^63 - 1 */
    KVF_AMOUNT,   /* double, finite, 0 or more */
    KVF_ABOVE_0,  /* double, finite, above 0 */
    KVF_SHARE,    /* double, from 0 to below 1 */
    KVF_REAL      /* double, finite */
} kvf__option_kind;

typedef struct kvf__strings {
    const char **item;
    size_t n;
} kvf__strings;

typedef struct kvf__option_row {
    const char *name;     /* long name without dashes */
    const char *argument; /* "FILE", "N", "on|off"; NULL: a flag */
    const char *initial;  /* default as text, "" if none */
    kvf__option_kind kind;
    size_t offset; /* offset of the field */
    const char *help;
} kvf__option_row;

/* Sets the row's field of `options`. Returns NULL, or on failure the expected value, such as "a
 * whole number from 0 to 2147483647", with nothing changed. For KVF_TEXTS the caller provides the
 * memory of the items. */
const char *kvf__option_set(const kvf__option_row *row, const char *value, void *options);
/* Parses "2G", "500M", "64K" or "512" to bytes; returns false for other texts. */
bool kvf__size_of(const char *text, int64_t *out);
/* Returns the index of `value` in "a|b|c", or -1. In "a|b|NAME:X" each alternative may be followed
 * by a colon and any text. */
int kvf__choice_index(const char *alternatives, const char *value);
/* Returns the alternative with this index, n bytes of the text; NULL past the last. */
const char *kvf__choice_at(const char *alternatives, int index, size_t *n);

/* Values of --chat-template, shared by several commands. */
#define KVF__CHAT_TEMPLATES                                                                        \
    "auto|none|rendered|chatml|llama3|mistral|gemma|phi3|phi4|phi4-mini|olmo2|granite|no-system|"  \
    "NAME:DATE"

/* Collects candidates and keeps the one nearest to a mistyped word; NULL: none is near. */
typedef struct kvf__nearest {
    const char *word; /* [n] */
    size_t n;
    const char *name;
    int far;
} kvf__nearest;
void kvf__nearest_try(kvf__nearest *nearest, const char *name);

/* Parses recipes and grids, lines `name = value` with comments after #. The functions change the
 * text. Returns the next line that is neither empty nor a comment, trimmed, or NULL. *text advances
 * and is NULL at the end; *number counts lines. */
char *kvf__option_line(char **text, int *number);
/* Splits a line at its "=", trimming both sides. Returns false if there is none. */
bool kvf__option_split(char *line, char **name, char **value);
/* Takes one value off a list separated by commas; a value with commas is in double quotes. *list
 * advances and is NULL at the end. Returns NULL, or the error to print after the option's name. */
const char *kvf__option_cut(char **list, char **value);
/* Trims white space at both ends, in place. */
char *kvf__trim(char *text);

/* Returns an option of train by index, with offsets in kvf_train_options; NULL past the last. The
 * other functions return those that distill, sweep and compare accept. */
const kvf__option_row *kvf__train_option_row(size_t index);
const kvf__option_row *kvf__distill_option_row(size_t index);
const kvf__option_row *kvf__sweep_option_row(size_t index);
const kvf__option_row *kvf__compare_option_row(size_t index);
/* Returns why sweep, or compare, does not accept an option of train; NULL: it does, or the option
 * is unknown. */
const char *kvf__sweep_refusal(const char *name);
const char *kvf__compare_refusal(const char *name);
/* Returns why all runs of a sweep share the value; NULL: it may differ. */
const char *kvf__option_shared(const char *name);
/* Checks the options of a new run, as far as possible without reading files. EUSAGE. */
kvf_status kvf__train_options_check(kvf_ctx *ctx, const kvf_train_options *options);
/* True if the method supports this option of train. Given options that it does not support are
 * refused. */
bool kvf__train_option_applies(const char *name, const char *method);

#endif
