/* What the command and the tests have of the library beyond its public headers. Neither installed
 * nor exported: both link the static archive. */
#ifndef KVF_HOOKS_H
#define KVF_HOOKS_H

#include <kvfold/base.h>

/* ---- tests ----------------------------------------------------------------------------------- */

/* Allocations made through this context so far (a training step adds none after the first). */
uint64_t kvf__ctx_allocations(const kvf_ctx *ctx);
/* The n-th allocation from now (0 = the next) fails once; -1 turns it off. */
void kvf__ctx_fail_allocation(kvf_ctx *ctx, int64_t n);

/* ---- the command ----------------------------------------------------------------------------- */

/* False in a build without src/lab, whose functions then give EUNSUPPORTED. */
extern const bool kvf__has_lab;

/* EUSAGE where a launcher of parallel programs started several processes: only training is divided
 * among them. what: "a sweep". */
kvf_status kvf__check_alone(kvf_ctx *ctx, const char *what);

/* EUSAGE where `out` is the very file that is read as `input` (a path, NAME=PATH or @PATH), by
 * whatever name: force is for what an earlier command wrote. NULL is no input; of a folder, the
 * files of a model or adapter are.
 * Every function here that writes asks this of what it reads itself. */
kvf_status kvf__check_not_input(kvf_ctx *ctx, const char *out, const char *input);
/* EIO where a file to be read is not there, cannot be read, or is a folder; NULL is none. What
 * loads a base asks this first. */
kvf_status kvf__check_input(kvf_ctx *ctx, const char *path);
/* EEXIST, EIO where a file cannot be written at the path: kvfold's own checks, before the work. */
kvf_status kvf__check_output(kvf_ctx *ctx, const char *path, bool force);

/* Removes the temporary files of outputs that are not whole yet. Safe in a handler of a
 * signal that then ends the process, and of no use elsewhere. */
void kvf__ctx_drop_outputs(kvf_ctx *ctx);

/* Path of the mapped file that holds the address; NULL: none does. For a handler of SIGBUS that
 * ends the process: it takes no lock. */
const char *kvf__mapped_path(const void *address);

/* Largest resident memory of this process so far, in bytes. */
int64_t kvf__peak_rss_bytes(void);
int64_t kvf__rss_bytes(void); /* at this moment; 0: not known */

/* Reads one of kvfold's HDF5 files as the commands do, keeping nothing: the status of the first
 * reader that refuses. Values of datasets above 1 MB are left out, though not the checks of how
 * they are stored. For the process that kvf_ctx_options.check_program runs. */
kvf_status kvf__check_file(kvf_ctx *ctx, const char *path);

/* Is the path a base file that merge made of a run of method full with a task's head? */
kvf_status kvf__base_has_head(kvf_ctx *ctx, const char *path, bool *out);
/* Is the file a run of such a method? */
kvf_status kvf__prefix_needs_base(kvf_ctx *ctx, const char *path, bool *out);

#endif
