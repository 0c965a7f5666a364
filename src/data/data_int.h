/* Data: reads files into rows, packs rows into batches, and orders the steps. Includes all parts; a
 * file that needs only one includes that header. */
#ifndef KVF_DATA_INT_H
#define KVF_DATA_INT_H

#include "batcher.h"
#include "sampler.h"

#endif
