/* The options of a run: checked, stored in its file, compared at --resume. */
#ifndef KVF_TRAIN_OPTIONS_H
#define KVF_TRAIN_OPTIONS_H

#include "option_table.h"

#include <kvfold/train.h>

/* Are the paths there that a run needs? EUSAGE. */
kvf_status kvf__train_options_require(kvf_ctx *ctx, const kvf_train_options *options);
/* Checks values against each other and fills what depends on others (lr by method). EUSAGE. */
kvf_status kvf__train_options_check(kvf_ctx *ctx, kvf_train_options *options);
/* --init-text and --init-kv of a run that begins imply --init, and want no other. EUSAGE. */
kvf_status kvf__train_options_imply(kvf_ctx *ctx, kvf_train_options *options);
/* Options as stored in a run: an object of scalars, without paths and what does not decide the
 * result. */
kvf_status kvf__train_options_store(kvf_ctx *ctx, const kvf_train_options *options, kvf_json **out);
/* For --resume: takes over stored values the caller left at their defaults; EUSAGE names the first
 * one that was given and differs. Texts are borrowed from `stored`. */
kvf_status kvf__train_options_resume(kvf_ctx *ctx, const char *path, kvf_train_options *options,
                                     const kvf_json *stored);

/* Was the option set by kvf_train_set? */
bool kvf__train_option_given(const kvf_train_options *options, const char *name);
/* Is the row with this index one of distill's options, too? */
bool kvf__train_option_distills(size_t index);

#endif
