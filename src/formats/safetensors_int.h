/* The element types of safetensors, in the order of the reference implementation, by which its
 * writer sorts tensors (descending). */
#ifndef KVF_SAFETENSORS_INT_H
#define KVF_SAFETENSORS_INT_H

#include "view.h"

typedef struct kvf__st_type {
    const char *name;
    size_t bits;      /* per element; 4 and 6 bits are packed without gaps */
    kvf__dtype dtype; /* OTHER: no arithmetic, never written */
} kvf__st_type;

#define KVF__ST_TYPES 22
extern const kvf__st_type kvf__st_types[KVF__ST_TYPES];

#define KVF__ST_MAX_HEADER ((size_t)100 * 1000 * 1000)

#endif
