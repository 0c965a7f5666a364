/* Data: files to rows, rows to packed batches, and the order in which steps see them. All parts; a
 * file that needs one includes that. */
#ifndef KVF_DATA_INT_H
#define KVF_DATA_INT_H

#include "batcher.h"
#include "sampler.h"

#endif
