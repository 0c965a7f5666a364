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

/* The type of the field, and the values that are accepted. */
typedef enum kvf__option_kind {
    KVF_NO_FIELD, /* the program acts on the option itself */
    KVF_FLAG,     /* bool: true (also NULL) or false */
    KVF_ON_OFF,   /* bool: on or off */
    KVF_EITHER,   /* bool: true is the second of the argument's two alternatives */
    KVF_TEXT,     /* const char *, borrowed */
    KVF_TEXTS,    /* kvf__strings: one more each time */
    KVF_WORD,     /* const char *, borrowed: one of the argument's alternatives */
    KVF_CHOICE,   /* an enum: the index of the value among the argument's alternatives */
    KVF_CHOICE_1, /* the same from 1: 0 means not given */
    KVF_COUNT,    /* int64_t, 0 to 2^31 - 1 */
    KVF_OR_AUTO,  /* the same, or auto: -1 */
    KVF_POSITIVE, /* int64_t, 1 to 2^31 - 1 */
    KVF_SEED,     /* uint64_t, 0 to 2^63 - 1 */
    KVF_AMOUNT,   /* double, finite, from 0 on */
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
    size_t offset; /* of the field */
    const char *help;
} kvf__option_row;

/* Sets the row's field of `options`. NULL, or, with nothing changed, what the value should have
 * been: "a whole number from 0 to 2147483647". Of KVF_TEXTS the caller provides the memory of the
 * items. */
const char *kvf__option_set(const kvf__option_row *row, const char *value, void *options);
/* Index of `value` among alternatives "a|b|c"; -1: it is none of them. In "a|b|NAME:X" a colon and
 * anything may follow each. */
int kvf__choice_index(const char *alternatives, const char *value);
/* The alternative with this index, n bytes of the text; NULL past the last. */
const char *kvf__choice_at(const char *alternatives, int index, size_t *n);

/* Values of --chat-template, which several commands have. */
#define KVF__CHAT_TEMPLATES                                                                        \
    "auto|none|rendered|chatml|llama3|mistral|gemma|phi3|phi4|phi4-mini|olmo2|no-system|NAME:DATE"

/* The name of those tried that is nearest to what was typed; NULL: none is near. */
typedef struct kvf__nearest {
    const char *word; /* [n] */
    size_t n;
    const char *name;
    int far;
} kvf__nearest;
void kvf__nearest_try(kvf__nearest *nearest, const char *name);

/* Recipes and grids are lines `name = value`; one that begins with # is a comment. These change the
 * text. The next line that is neither empty nor a comment, trimmed; NULL: there is none. *text
 * moves on, NULL at its end; *number counts lines. */
char *kvf__option_line(char **text, int *number);
/* Cuts a line at its "=", both sides trimmed; false: it has none. */
bool kvf__option_split(char *line, char **name, char **value);
/* Takes one value off a list with commas, in which a value with commas stands in double quotes;
 * *list moves on, NULL at its end. NULL, or what is wrong with it, to follow its name. */
const char *kvf__option_cut(char **list, char **value);
/* Cuts white space off both ends, in place. */
char *kvf__trim(char *text);

/* Options of train by index, with offsets of kvf_train_options; NULL past the last. The others are
 * those of them that a distillation, a sweep and a comparison have. */
const kvf__option_row *kvf__train_option_row(size_t index);
const kvf__option_row *kvf__distill_option_row(size_t index);
const kvf__option_row *kvf__sweep_option_row(size_t index);
const kvf__option_row *kvf__compare_option_row(size_t index);
/* Why a sweep, or a comparison, does not have an option of train; NULL: it has, or there is no such
 * option. */
const char *kvf__sweep_refusal(const char *name);
const char *kvf__compare_refusal(const char *name);
/* Why all runs of a sweep have the same value; NULL: they may differ. */
const char *kvf__option_shared(const char *name);
/* Checks a new run's options, as far as that is possible before its files are read. EUSAGE. */
kvf_status kvf__train_options_check(kvf_ctx *ctx, const kvf_train_options *options);
/* True if the method has this option of train. It refuses others that are given. */
bool kvf__train_option_applies(const char *name, const char *method);

#endif
