/* States that processes share which run after each other (--keep-states in compare). */
#ifndef KVF_STATES_HOOKS_H
#define KVF_STATES_HOOKS_H

#include <kvfold/base.h>

/* Variable with the descriptor of the file, which they inherit. */
#define KVF__STATES_FD "KVFOLD_STATES_FD"
/* A new file in the folder that has no name, closed on exec; -1: there is none, see errno. */
int kvf__states_file(kvf_ctx *ctx, const char *folder);

#endif
