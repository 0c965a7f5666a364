/* Starting values of the encoder (start.c). Inside this folder. */
#ifndef KVF_START_H
#define KVF_START_H

#include "trainer.h"

/* One --init. A start has `target` or `begin`. */
typedef struct kvf__start {
    const char *name;
    bool words; /* begins from words, which a method may take as inputs of its layers */
    /* What the run lacks for it, "a causal base"; NULL: nothing. No function: every run has it. */
    const char *(*lacks)(const kvf__trainer *t);
    /* Fills what the encoder is to emit, zeros so far. */
    kvf_status (*target)(kvf__trainer *t, kvf__emitted target);
    /* Sets the encoder's parameters, random so far. */
    kvf_status (*begin)(kvf__trainer *t);
} kvf__start;

/* Solves for the encoder that emits the start's target, or the content of the file where one is
 * given. *residual: relative distance that is left. EUSAGE: it is too large. */
kvf_status kvf__start_reach(kvf__trainer *t, kvf_prefix *file, const kvf__start *start,
                            double *residual);

/* start_words.c: the target of `text` and `vocab`; the words as inputs of the method's layers. */
kvf_status kvf__start_words(kvf__trainer *t, kvf__emitted target);
kvf_status kvf__start_inputs(kvf__trainer *t);

/* start_file.c: the target that a prefix file is; --init-kv (no head) and --init-from of a prefix;
 * --init-from of any file; --init-encoder; the values of port block. */
kvf_status kvf__start_target_file(kvf__trainer *t, const char *path, kvf_prefix *file,
                                  kvf__emitted target);
kvf_status kvf__start_prefix(kvf__trainer *t, const char *path, bool with_head);
kvf_status kvf__start_file(kvf__trainer *t, const char *path);
kvf_status kvf__start_safetensors(kvf__trainer *t, const char *path);
kvf_status kvf__start_block(kvf__trainer *t);

#endif
