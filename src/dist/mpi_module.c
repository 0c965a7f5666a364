/* The module kvfold-mpi.so: the table of mpi_table.h on the MPI of the build. */
#include "mpi_table.h"

#include <mpi.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(kvf__request), "a request holds that of any MPI");
_Static_assert(MPI_MAX_ERROR_STRING <= KVF__MPI_TEXT, "a message fits");

static MPI_Comm all = MPI_COMM_NULL;

static bool begun(void)
{
    int yes = 0;
    MPI_Initialized(&yes);
    return yes;
}

static int begin(int *rank, int *size)
{
    int level = 0, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS) return code;
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    return code;
}

static int connect_all(void)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return MPI_Comm_dup(MPI_COMM_WORLD, &all);
}

static void end(void)
{
    if (all != MPI_COMM_NULL) MPI_Comm_free(&all);
    MPI_Finalize();
}

static void abort_all(void)
{
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void describe(int code, char text[KVF__MPI_TEXT])
{
    int n = 0;
    MPI_Error_string(code, text, &n);
}

/* Stores a request of this MPI in one of any MPI. */
static int keep(int code, MPI_Request own, kvf__request *request)
{
    memcpy(request, &own, sizeof own);
    return code;
}

static int broadcast(void *data, int bytes, kvf__request *request)
{
    MPI_Request own = MPI_REQUEST_NULL;
    int code = MPI_Ibcast(data, bytes, MPI_BYTE, 0, all, &own);
    return keep(code, own, request);
}

static int gather(const void *mine, int bytes, void *into, kvf__request *request)
{
    MPI_Request own = MPI_REQUEST_NULL;
    int code = MPI_Igather(mine, bytes, MPI_BYTE, into, bytes, MPI_BYTE, 0, all, &own);
    return keep(code, own, request);
}

static int receive(float *x, int n, int rank, int tag, kvf__request *request)
{
    MPI_Request own = MPI_REQUEST_NULL;
    int code = MPI_Irecv(x, n, MPI_FLOAT, rank, tag, all, &own);
    return keep(code, own, request);
}

static int send(const float *x, int n, int rank, int tag, kvf__request *request)
{
    MPI_Request own = MPI_REQUEST_NULL;
    int code = MPI_Isend(x, n, MPI_FLOAT, rank, tag, all, &own);
    return keep(code, own, request);
}

static int test(int n, kvf__request *requests, int *done)
{
    int code = MPI_SUCCESS;
    *done = 1;
    for (int i = 0; i < n && code == MPI_SUCCESS && *done; i++) {
        MPI_Request own;
        memcpy(&own, &requests[i], sizeof own);
        code = MPI_Test(&own, done, MPI_STATUS_IGNORE);
        keep(code, own, &requests[i]);
    }
    return code;
}

const kvf__mpi kvf__mpi_table = {.begun = begun,
                                 .begin = begin,
                                 .connect = connect_all,
                                 .end = end,
                                 .abort = abort_all,
                                 .describe = describe,
                                 .broadcast = broadcast,
                                 .gather = gather,
                                 .receive = receive,
                                 .send = send,
                                 .test = test};
