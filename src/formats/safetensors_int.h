/* The element types of safetensors, in the order of the reference implementation, which is also the
 * (descending) order in which its writer puts tensors. */
#ifndef KVF_SAFETENSORS_INT_H
#define KVF_SAFETENSORS_INT_H

#include "view.h"

typedef struct kvf__st_type {
    const char *name;
    size_t bits;      /* per element; 4 and 6 bits are packed without gaps */
    kvf__dtype dtype; /* OTHER: never computed with, never written */
} kvf__st_type;

#define KVF__ST_TYPES 22
extern const kvf__st_type kvf__st_types[KVF__ST_TYPES];

#define KVF__ST_MAX_HEADER ((size_t)100 * 1000 * 1000)

#endif
