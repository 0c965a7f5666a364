/* Cached states shared by consecutive processes (--keep-states in compare). */
#ifndef KVF_STATES_HOOKS_H
#define KVF_STATES_HOOKS_H

#include <kvfold/base.h>

/* Environment variable with the file descriptor that they inherit. */
#define KVF__STATES_FD "KVFOLD_STATES_FD"
/* Creates an unnamed file in the folder, closed on exec. Returns -1 on failure, with errno. */
int kvf__states_file(kvf_ctx *ctx, const char *folder);

#endif
