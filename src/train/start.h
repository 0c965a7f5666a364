/* Starting values of the encoder, one row for each --init (start.c). */
#ifndef KVF_START_H
#define KVF_START_H

#include "tuned.h"

/* start.c: chooses --init where it is not given, and checks it; sets the starting values. fed:
 * rows come from a feed. */
kvf_status kvf__start_decide(kvf__run *run, bool fed);
kvf_status kvf__start_values(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows);

/* start_file.c: fills what the encoder is to emit, zeros so far. */
typedef kvf_status kvf__start_target(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                                     kvf__emitted target);
/* Solves for the encoder that emits the target, or the content of the file where one is given.
 * *residual: relative distance that is left. EUSAGE: it is too large. */
kvf_status kvf__start_reach(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                            kvf_prefix *file, kvf__start_target *target, double *residual);

/* start_words.c: the target of `text` and `vocab`; the words as inputs of the method's layers. */
kvf__start_target kvf__start_words;
kvf_status kvf__start_inputs(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows);

/* match_rows.c: --init match without a feed that has a start of its own: *target, zeros so far,
 * becomes what rows of the data are as a context. They have too few tokens: EUSAGE, or options.init
 * becomes vocab where it was left open, and *target is as it was. */
kvf_status kvf__match_rows(kvf__run *run, const kvf__dataset *data, kvf__prefix *target);
/* centroids.c: --init centroids: *target becomes a prefix whose keys lie at centroids of what rows
 * of the data ask, for text behind it at the run's positions. */
kvf_status kvf__centroids(kvf__run *run, const kvf__dataset *data, kvf__prefix *target);

/* start_file.c: --init-kv (no head) and --init-from of a prefix; --init-from of any file;
 * --init-encoder; the values of port block. */
kvf_status kvf__start_prefix(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                             const char *path, bool with_head);
kvf_status kvf__start_file(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                           const char *path);
kvf_status kvf__start_safetensors(kvf__run *run, kvf__tuned *tuned, const char *path);
kvf_status kvf__start_block(kvf__run *run, kvf__train_rows *rows);

#endif
