/* Rows in memory (memory_rows.c), which readers access by a path. */
#ifndef KVF_MEMORY_ROWS_H
#define KVF_MEMORY_ROWS_H

#include <kvfold/rows.h>

#include "base_int.h"

/* Returns a path as error messages name it: "rows" for rows in memory. */
const char *kvf__shown_path(const char *path);

#endif
