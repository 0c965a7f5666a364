/* Helpers of the tests: array comparison, paths of shared data, and one main for all suites. */
#ifndef KVF_CK_H
#define KVF_CK_H

#include <check.h>
#include <kvfold/base.h>
#include <stddef.h>
#include <stdint.h>

/* Fails with the first bad index, both values and the worst error unless |got - want| <= atol +
 * rtol * |want| everywhere. NaN fails. */
#define ck_close(got, want, n, rtol, atol)                                                         \
    ck_close_at(__FILE__, __LINE__, #got, got, want, n, rtol, atol)
void ck_close_at(const char *file, int line, const char *what, const float *got, const float *want,
                 size_t n, double rtol, double atol);

/* |got - want|_2 / |want|_2. */
double ck_rel_l2(const float *got, const float *want, size_t n);

/* Leaves a test that cannot run here: data, a model or CPU instructions are missing. */
#define ck_need(condition, what)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            ck_skip(what);                                                                         \
            return;                                                                                \
        }                                                                                          \
    } while (0)
/* Prints the reason and counts the test as skipped; the test then returns. */
void ck_skip(const char *what);

/* Path of NAME in the shared data ($KVF_SHARED, or ../shared next to the project). NULL if it is
 * missing: the test then skips. The text lives until the process ends. */
const char *ck_shared(const char *name);
/* Path of a file in the source tree, e.g. "tests/golden/x.h5". */
const char *ck_source(const char *name);
/* A new empty temporary folder, removed when the process of this test ends. */
const char *ck_tmpdir(void);

/* A context as made by kvf_ctx_create, with its threads set for internal functions, which tests
 * call without a public function around them. */
kvf_status ck_ctx_create(const kvf_ctx_options *options, kvf_ctx **out);
#define kvf_ctx_create ck_ctx_create

/* A new case of the suite, with a checked fixture and a timeout in seconds. */
TCase *ck_case(Suite *suite, const char *name, SFun setup, SFun teardown, double seconds);
/* Runs a suite and prints how many tests passed, failed and were skipped; the return value of main,
 * 77 if all were skipped. */
int ck_main(Suite *suite);

#endif
