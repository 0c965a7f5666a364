/* Initial values of the encoder, one row for each --init (start.c). */
#ifndef KVF_START_H
#define KVF_START_H

#include "tuned.h"

/* start.c: chooses the default of --init and checks it; sets the initial values. fed: rows come
 * from a feed. */
kvf_status kvf__start_decide(kvf__run *run, bool fed);
kvf_status kvf__start_values(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows);

/* start_file.c: fills the target that the encoder should emit, zero before. */
typedef kvf_status kvf__start_target(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                                     kvf__emitted target);
/* Solves for an encoder that emits the target, or the prefix in `file` if given. *residual:
 * relative error. EUSAGE: it is too large. */
kvf_status kvf__start_reach(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                            kvf_prefix *file, kvf__start_target *target, double *residual);

/* start_words.c: target of `text` and `vocab`; the words as inputs of the method's layers. */
kvf__start_target kvf__start_words;
kvf_status kvf__start_inputs(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows);

/* match_rows.c: --init match, unless a feed has its own. Fills *target, zero before, with a prefix
 * that stands for training rows in the context. With too few tokens it returns EUSAGE, or sets
 * options.init to vocab if --init was not given, and leaves *target unchanged. */
kvf_status kvf__match_rows(kvf__run *run, const kvf__dataset *data, kvf__prefix *target);
/* centroids.c: --init centroids. Fills *target with keys at centroids of the queries of training
 * rows at the run's positions. */
kvf_status kvf__centroids(kvf__run *run, const kvf__dataset *data, kvf__prefix *target);

/* start_file.c: --init-kv (without head) and --init-from of a prefix; --init-from of any file;
 * --init-encoder; initial values of port block. */
kvf_status kvf__start_prefix(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                             const char *path, bool with_head);
kvf_status kvf__start_file(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                           const char *path);
kvf_status kvf__start_safetensors(kvf__run *run, kvf__tuned *tuned, const char *path);
kvf_status kvf__start_block(kvf__run *run, kvf__train_rows *rows);

#endif
