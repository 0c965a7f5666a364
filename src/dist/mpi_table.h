/* MPI as src/dist uses it: the functions of the module kvfold-mpi.so, which is opened only in a
 * process that a launcher started. All calls return an MPI error code, 0 on success. */
#ifndef KVF_MPI_TABLE_H
#define KVF_MPI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { KVF__MPI_TEXT = 1024 }; /* bytes of an error message at most */

typedef void *kvf__request; /* a pending transfer: an MPI_Request of any MPI */

typedef struct kvf__mpi {
    bool (*begun)(void);                /* by this process, earlier */
    int (*begin)(int *rank, int *size); /* of all processes */
    int (*connect)(void);               /* makes the communicator of all calls below */
    void (*end)(void);
    void (*abort)(void); /* ends all processes */
    void (*describe)(int code, char text[KVF__MPI_TEXT]);
    int (*broadcast)(void *data, int bytes, kvf__request *request);
    int (*gather)(const void *mine, int bytes, void *all, kvf__request *request);
    int (*receive)(float *x, int n, int rank, int tag, kvf__request *request);
    int (*send)(const float *x, int n, int rank, int tag, kvf__request *request);
    int (*test)(int n, kvf__request *requests, int *done); /* done: all n have ended */
} kvf__mpi;

extern const kvf__mpi kvf__mpi_table; /* the symbol of the module */

#endif
