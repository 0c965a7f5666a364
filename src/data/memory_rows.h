/* Rows in memory (memory_rows.c), as readers of data see them: by a path. */
#ifndef KVF_MEMORY_ROWS_H
#define KVF_MEMORY_ROWS_H

#include <kvfold/rows.h>

#include "base_int.h"

/* The path as error lines name it: "rows" for that of rows in memory. */
const char *kvf__shown_path(const char *path);

#endif
