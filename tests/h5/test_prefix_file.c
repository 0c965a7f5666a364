/* Tests of the prefix file: round trips, equal bytes, and every kind of invalid file. The golden
 * files were made by h5py (golden/make_h5_golden.py); their values are i / 64 - 2. */
#include "artifact_priv.h"
#include "h5_fixture.h"

#include <sys/stat.h>

static kvf_status read_status(const char *path)
{
    kvf__artifact file = {0};
    kvf_status st = kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file);
    kvf__artifact_done(&file);
    return st;
}

static void write_sample(const char *path, kvf__dtype dtype)
{
    kvf__artifact file;
    make_prefix_file(&file, dtype);
    ck_ok(kvf__artifact_write(ctx, path, false, &file));
    kvf__artifact_done(&file);
}

/* ---- core ------------------------------------------------------------------------------------ */

static const kvf__dtype DTYPES[] = {KVF__F32, KVF__F16, KVF__BF16, KVF__I8};

START_TEST(round_trip)
{
    kvf__artifact file, back = {0};
    const char *path = in_dir("p.h5");

    make_prefix_file(&file, DTYPES[_i]);
    ck_ok(kvf__artifact_write(ctx, path, false, &file));
    ck_ok(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &back));
    ck_assert_int_eq(back.dtype, DTYPES[_i]);
    ck_assert_str_eq(back.id.base_name, IDENTITY.base_name);
    ck_assert_str_eq(back.id.base_architecture, "llama");
    ck_assert_str_eq(back.id.base_hash, IDENTITY.base_hash);
    ck_assert_str_eq(back.id.method, "mlp");
    ck_assert_str_eq(back.id.task, "lm");
    ck_assert_str_eq(back.id.chat_template, "none");
    ck_assert_int_eq(back.id.position_start, 5);
    ck_assert(back.id.L == 3 && back.id.G == 2 && back.id.P == 5 && back.id.D == 4);
    ck_assert_int_eq(memcmp(back.prefix.layer_mask, "\1\0\1", 3), 0);
    kvf__prefix want = {0};
    ck_ok(kvf__prefix_rounded(ctx, path, DTYPES[_i], &file.prefix, &want));
    ck_assert_int_eq(
        memcmp(back.prefix.kv, want.kv, kvf__prefix_count(&file.prefix) * sizeof(float)), 0);
    if (DTYPES[_i] != KVF__I8) /* values are exact in the other types */
        ck_assert_int_eq(memcmp(want.kv, file.prefix.kv, kvf__prefix_count(&want) * sizeof(float)),
                         0);
    kvf__prefix_done(&want);
    ck_json_eq(back.options,
               "{\"zeta\":1,\"lr\":0.01,\"steps\":-100,\"method\":\"mlp\",\"shuffle\":true,"
               "\"clip\":null,\"empty\":\"\",\"big\":9007199254740993,"
               "\"text\":\"a \xc3\xa9 b\"}");
    ck_json_eq(back.lineage, "{\"data_hash\":\"00ff\",\"fold_max_abs_diff\":0.0}");
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(equal_content_equal_bytes)
{
    kvf__artifact back = {0};
    const char *first = in_dir("first.h5"), *second = in_dir("second.h5"),
               *third = in_dir("third.h5");

    write_sample(first, DTYPES[_i]);
    usleep(20000);
    write_sample(second, DTYPES[_i]);
    ck_same_bytes(first, second);
    ck_ok(kvf__artifact_read(ctx, first, KVF__KIND_PREFIX, &back));
    ck_ok(kvf__artifact_write(ctx, third, false, &back));
    ck_same_bytes(first, third);
    kvf__artifact_done(&back);
}
END_TEST

/* The state of layers without attention. */
START_TEST(a_state_is_kept)
{
    static const float VALUES[] = {1, -2.5f, 0.125f};
    kvf__artifact file, back = {0};
    make_prefix_file(&file, KVF__I8);
    ck_ok(kvf__prefix_set_state(ctx, &file.prefix, VALUES, 3));
    ck_ok(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file));
    ck_ok(kvf__artifact_read(ctx, in_dir("p.h5"), KVF__KIND_PREFIX, &back));
    ck_assert_int_eq(back.prefix.states, 3);
    ck_assert_mem_eq(back.prefix.state, VALUES, sizeof VALUES);
    kvf__artifact_done(&back);
    file.prefix.state[1] = INFINITY;
    ck_ok(kvf__artifact_write(ctx, in_dir("bad.h5"), false, &file));
    ck_fails(kvf__artifact_read(ctx, in_dir("bad.h5"), KVF__KIND_PREFIX, &back), KVF_ENUMERIC,
             "/mixer_state: value 1 is inf, want finite values");
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(no_items_is_not_empty_items)
{
    kvf__artifact file, back = {0};

    make_prefix_file(&file, KVF__F32);
    kvf_json_free(file.options);
    kvf_json_free(file.lineage);
    file.options = NULL;
    file.lineage = json("{}");
    ck_ok(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file));
    ck_ok(kvf__artifact_read(ctx, in_dir("p.h5"), KVF__KIND_PREFIX, &back));
    ck_assert_ptr_null(back.options);
    ck_json_eq(back.lineage, "{}");
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(tells_its_kind)
{
    kvf__kind kind = KVF__KIND_ANY;
    char version[32];

    write_sample(in_dir("p.h5"), KVF__F32);
    ck_ok(kvf__kind_of(ctx, in_dir("p.h5"), &kind));
    ck_assert_str_eq(kvf__kind_name(kind), "prefix");
    ck_assert_uint_eq(strspn(kvf__h5_version(version), "0123456789."), strlen(version));
    ck_assert_ptr_nonnull(strchr(version, '.'));
}
END_TEST

START_TEST(layout_is_as_documented)
{
    static const char *const LABELS[] = {"layer", "key_value", "batch",
                                         "head",  "position",  "head_dim"};
    static const int64_t DIMS[] = {3, 2, 1, 2, 5, 4}, CHUNK[] = {1, 2, 1, 2, 5, 4};
    kvf__h5 h5;
    kvf__h5_id group;
    kvf__h5_data data;

    write_sample(in_dir("p.h5"), KVF__BF16);
    h5 = kvf__h5_open(ctx, in_dir("p.h5"), "prefix");
    group = kvf__h5_group_open(&h5, h5.file, "prefix");
    data = kvf__h5_data_open(&h5, group, "past_key_values");
    ck_assert_int_eq(data.rank, 6);
    ck_assert_int_eq(memcmp(data.dim, DIMS, sizeof DIMS), 0);
    ck_assert_int_eq(memcmp(data.chunk, CHUNK, sizeof CHUNK), 0);
    ck_assert(data.chunked && data.shuffle && data.fletcher32 && !data.deflate);
    for (int i = 0; i < 6; i++) {
        char *label = NULL;
        label = kvf__h5_data_label(&h5, &data, i);
        ck_assert_pstr_eq(label, LABELS[i]);
        kvf__free(label);
    }
    kvf__h5_release(&data.id);
    kvf__h5_release(&group);
    ck_ok(kvf__h5_close(&h5));
}
END_TEST

/* ---- heads by layer -------------------------------------------------------------------------- */

/* Layer 0 has 2 heads of 4, layer 1 one of 8, layer 2 three of 4. */
static const kvf__kv_heads BY_LAYER[] = {{2, 4, 0, 0}, {1, 8, 2, 8}, {3, 4, 3, 16}, {0, 0, 6, 28}};

static void make_by_layer(kvf__artifact *file, kvf__dtype dtype)
{
    const kvf__kv_shape shape = {3, KVF__BY_LAYER, KVF__BY_LAYER, BY_LAYER};

    make_prefix_file(file, dtype);
    kvf__prefix_done(&file->prefix);
    ck_ok(kvf__prefix_create(ctx, &file->prefix, &shape, 5));
    ck_ok(kvf__identity_set_kv(ctx, &file->id, &shape));
    for (size_t i = 0; i < kvf__prefix_count(&file->prefix); i++)
        file->prefix.kv[i] = (float)i / 32.0f - 1.0f;
    ck_ok(kvf__prefix_weigh(ctx, &file->prefix));
    for (size_t i = 0; i < kvf__prefix_weights(&file->prefix); i++)
        file->prefix.log_weight[i] = (float)i / 4 - 3;
}

START_TEST(by_layer_round_trip)
{
    kvf__artifact file, back = {0};
    kvf__prefix rounded = {0};
    const char *path = in_dir("heads.h5"), *again = in_dir("again.h5");

    make_by_layer(&file, DTYPES[_i]);
    ck_assert_uint_eq(kvf__prefix_count(&file.prefix), 2 * 5 * 28);
    ck_ok(kvf__artifact_write(ctx, path, false, &file));
    ck_ok(kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &back));
    ck_ok(kvf__prefix_rounded(ctx, "x", DTYPES[_i], &file.prefix, &rounded));
    const kvf__kv_shape want = kvf__identity_kv(&file.id), got = kvf__identity_kv(&back.id);
    ck_assert(kvf__kv_same(&want, &got) && back.id.G == KVF__BY_LAYER);
    ck_assert_mem_eq(back.prefix.kv, rounded.kv, 2 * 5 * 28 * sizeof(float));
    ck_assert_mem_eq(back.prefix.log_weight, file.prefix.log_weight, 6 * 5 * sizeof(float));
    ck_ok(kvf__artifact_write(ctx, again, false, &back));
    kvf__artifact_done(&back);
    kvf__prefix_done(&rounded);
    file.prefix.heads[1].D = 4; /* contradicts its identity */
    ck_fails(kvf__artifact_write(ctx, again, true, &file), KVF_ESHAPE, "its identity");
    kvf__artifact_done(&file);
}
END_TEST

/* ---- log-weights ----------------------------------------------------------------------------- */

/* Mask of the sample: layer 1 is masked. */
static void weigh(kvf__artifact *file)
{
    ck_ok(kvf__prefix_weigh(ctx, &file->prefix));
    for (int64_t i = 0; i < 3 * 10; i++)
        file->prefix.log_weight[i] = i / 10 == 1 ? 0 : (float)i / 4 - 3;
}

START_TEST(weighted_round_trip)
{
    kvf__artifact file, back = {0};
    kvf__prefix rounded = {0};
    kvf__h5 h5;

    make_prefix_file(&file, DTYPES[_i]);
    weigh(&file);
    ck_ok(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file));
    ck_ok(kvf__artifact_read(ctx, in_dir("p.h5"), KVF__KIND_PREFIX, &back));
    ck_assert_mem_eq(back.prefix.log_weight, file.prefix.log_weight, 30 * sizeof(float));
    ck_ok(kvf__artifact_write(ctx, in_dir("again.h5"), false, &back));
    ck_same_bytes(in_dir("p.h5"), in_dir("again.h5"));
    ck_ok(kvf__prefix_rounded(ctx, "p", DTYPES[_i], &file.prefix, &rounded));
    ck_assert_mem_eq(rounded.log_weight, file.prefix.log_weight, 30 * sizeof(float));
    h5 = kvf__h5_open(ctx, in_dir("p.h5"), "prefix");
    ck_assert_uint_eq(h5.features, KVF__LAYER_MASK | KVF__LOG_WEIGHTS);
    ck_ok(kvf__h5_close(&h5));
    write_sample(in_dir("plain.h5"), DTYPES[_i]);
    h5 = kvf__h5_open(ctx, in_dir("plain.h5"), "prefix");
    ck_assert_uint_eq(h5.features, KVF__LAYER_MASK);
    ck_ok(kvf__h5_close(&h5));
    kvf__prefix_done(&rounded);
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(bad_log_weights)
{
    static const struct {
        int at;
        float value;
        kvf_status status;
        const char *line;
    } BAD[] = {{3, NAN, KVF_ENUMERIC, "a log-weight of layer 0 is nan, want -10000 to 10000"},
               {29, 10001, KVF_ENUMERIC, "a log-weight of layer 2 is 10001"},
               {12, 0.5f, KVF_EFORMAT, "layer 1 is masked and has a log-weight of 0.5, want 0"}};
    kvf__artifact file;

    make_prefix_file(&file, KVF__F32);
    weigh(&file);
    file.prefix.log_weight[BAD[_i].at] = BAD[_i].value;
    ck_fails(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file), BAD[_i].status, BAD[_i].line);
    ck_assert_int_eq(files_in_dir(), 0);
    kvf__artifact_done(&file);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

START_TEST(refuses_to_write)
{
    static const float huge[] = {65519.0f, 65520.0f};
    kvf__artifact file;
    const char *path = in_dir("p.h5");

    make_prefix_file(&file, KVF__F32);
    file.prefix.P = 0;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ESHAPE, "length 0");
    file.prefix.P = 5;
    file.id.G = 7;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ESHAPE,
             "its identity says 3, 7, 5, 4");
    file.id.G = 2;
    file.dtype = KVF__U8;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EUSAGE, "not as u8");
    file.dtype = KVF__F16;
    file.prefix.kv[3] = huge[1];
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ENUMERIC, "layer 0 holds 65520");
    file.dtype = KVF__F32;
    file.prefix.kv[3] = NAN;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ENUMERIC, "layer 0 holds nan");
    file.prefix.kv[3] = 0;
    file.prefix.kv[100] = 1;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EFORMAT, "layer 1 is masked");
    file.prefix.kv[100] = 0;
    file.id.base_hash[0] = 'X';
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EUSAGE, "32 hex digits");
    file.id.base_hash[0] = '0';
    kvf_json_set(file.options, "list", kvf_json_array());
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_EUSAGE, "\"list\" is a list");
    ck_assert_int_eq(files_in_dir(), 0);
    kvf_json_free(file.options);
    file.options = NULL;
    file.dtype = KVF__F16;
    file.prefix.kv[3] = huge[0];
    ck_ok(kvf__artifact_write(ctx, path, false, &file));
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(keeps_an_existing_file)
{
    kvf__artifact file;

    make_prefix_file(&file, KVF__F32);
    ck_ok(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file));
    ck_fails(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file), KVF_EEXIST, "p.h5: exists");
    ck_ok(kvf__artifact_write(ctx, in_dir("p.h5"), true, &file));
    ck_fails(kvf__artifact_write(ctx, in_dir("no/p.h5"), false, &file), KVF_EIO, "no/p.h5");
    ck_assert_int_eq(files_in_dir(), 1);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(allocation_failures)
{
    kvf__artifact file, back = {0};
    const char *path = in_dir("p.h5");
    kvf_status st = KVF_ENOMEM;

    make_prefix_file(&file, KVF__BF16);
    for (int n = 0; st; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__artifact_write(ctx, path, false, &file);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert_int_eq(files_in_dir(), st == KVF_OK);
    }
    st = KVF_ENOMEM;
    for (int n = 0; st; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &back);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert(st == KVF_OK || !back.prefix.kv);
    }
    kvf__ctx_fail_allocation(ctx, -1);
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

/* ---- another file at the path ---------------------------------------------------------------- */

/* Effect on p.h5, in its folder, of the program that tries it. */
static const struct {
    const char *does;
    kvf_status status;
    const char *says;
} SWAPS[] = {
    {"mv -f other.h5 p.h5; echo ok", KVF_OK, NULL},
    {"mv p.h5 aside; mv other.h5 p.h5; cmp -s \"$2\" want.h5 && echo ok || echo \"4 $2: not "
     "tried\"; "
     "mv p.h5 other.h5; mv aside p.h5",
     KVF_EFORMAT, "/p.h5: not tried"},
    {"rm p.h5; echo ok", KVF_OK, NULL},
};

START_TEST(another_at_the_path)
{
    char text[1024], program[512];
    kvf_ctx_options options = {.threads = 1, .check_program = program};
    kvf_ctx *own = NULL;
    kvf__artifact back = {0};

    snprintf(program, sizeof program, "%s", in_dir("program"));
    int n = snprintf(text, sizeof text, "#!/bin/sh\ncd '%s' || exit 1\n%s\n", dir, SWAPS[_i].does);
    write_bytes(program, text, (size_t)n);
    ck_assert_int_eq(chmod(program, 0755), 0);
    write_sample(in_dir("p.h5"), KVF__F32);
    write_sample(in_dir("other.h5"), KVF__BF16);
    write_sample(in_dir("want.h5"), KVF__BF16);
    ck_ok(kvf_ctx_create(&options, &own));
    kvf_status st = kvf__artifact_read(own, in_dir("p.h5"), KVF__KIND_PREFIX, &back);
    ck_assert_msg(st == SWAPS[_i].status, "%s", kvf_ctx_error(own));
    if (!st) ck_assert_int_eq(back.dtype, KVF__F32);
    if (SWAPS[_i].says) ck_assert_ptr_nonnull(strstr(kvf_ctx_error(own), SWAPS[_i].says));
    kvf__artifact_done(&back);
    kvf_ctx_free(own);
}
END_TEST

/* ---- errors: damaged bytes ------------------------------------------------------------------- */

START_TEST(truncated_anywhere)
{
    const char *path = in_dir("p.h5"), *cut = in_dir("cut.h5");
    size_t n;

    write_sample(path, KVF__F32);
    uint8_t *bytes = read_bytes(path, &n);
    for (size_t k = 0; k < n; k += k < 200 || k > n - 200 ? 1 : 97) {
        write_bytes(cut, bytes, k);
        kvf_status st = read_status(cut);
        if (k == n - SEAL_BYTES)
            ck_ok(st); /* all of HDF5's bytes, no seal */
        else
            ck_fails(st, KVF_EFORMAT, cut);
    }
    free(bytes);
}
END_TEST

/* Changes every byte of a sealed file; detection does not need HDF5. */
START_TEST(flipped_anywhere)
{
    const char *path = in_dir("p.h5"), *flipped = in_dir("flipped.h5");
    size_t n;

    write_sample(path, KVF__F32);
    uint8_t *bytes = read_bytes(path, &n);
    for (size_t k = 0; k < n; k += 3) {
        bytes[k] ^= (uint8_t)(1u << (k / 3 % 8));
        write_bytes(flipped, bytes, n);
        kvf_status st = read_status(flipped);
        ck_assert_msg(st == KVF_EFORMAT || st == KVF_EUNSUPPORTED, "byte %zu: %s", k,
                      kvf_status_name(st));
        bytes[k] ^= (uint8_t)(1u << (k / 3 % 8));
    }
    free(bytes);
}
END_TEST

/* Without the seal HDF5 detects the damage: never a crash, and never other values. */
static void flip_unsealed(size_t from, size_t to, size_t step)
{
    const char *path = in_dir("p.h5"), *flipped = in_dir("flipped.h5");
    kvf__artifact want;
    size_t n;

    write_sample(path, KVF__F32);
    make_prefix_file(&want, KVF__F32);
    uint8_t *bytes = read_bytes(path, &n);
    n -= SEAL_BYTES;
    for (size_t k = from; k < n && k < to; k += step) {
        kvf__artifact got = {0};
        bytes[k] ^= (uint8_t)(1u << (k % 8));
        write_bytes(flipped, bytes, n);
        if (kvf__artifact_read(ctx, flipped, KVF__KIND_PREFIX, &got) == KVF_OK)
            ck_assert_msg(memcmp(got.prefix.kv, want.prefix.kv,
                                 kvf__prefix_count(&want.prefix) * sizeof(float)) == 0,
                          "byte %zu changes the values", k);
        kvf__artifact_done(&got);
        bytes[k] ^= (uint8_t)(1u << (k % 8));
    }
    free(bytes);
    kvf__artifact_done(&want);
}

START_TEST(flipped_without_a_seal)
{
    flip_unsealed(0, SIZE_MAX, 11);
}
END_TEST

/* The global heap, which HDF5 1.10 trusts without checks, starts at byte 2048. */
START_TEST(flipped_heap_without_a_seal)
{
    flip_unsealed(2048, 2048 + 700, 1);
}
END_TEST

/* Exported by every libhdf5, declared by none of its public headers: Jenkins' lookup3. */
uint32_t H5_checksum_metadata(const void *data, size_t n, uint32_t start);

/* HDF5 would allocate the length of the text times the size of a character. */
START_TEST(wide_characters)
{
    enum { AT_SIZE = 12 /* in a text type: the type of its characters */ };
    static const char kind[] = "kvfold_kind";
    const char *path = in_dir("p.h5");
    const uint32_t size = 1 << 30;
    size_t n;

    write_sample(path, KVF__F32);
    uint8_t *bytes = read_bytes(path, &n), *root = memmem(bytes, n, "OHDR", 4);
    uint8_t *type = (uint8_t *)memmem(root, n - (size_t)(root - bytes), kind, sizeof kind) +
                    sizeof kind;
    uint8_t *sum = (uint8_t *)memmem(type, n - (size_t)(type - bytes), "OHDR", 4) - sizeof size;
    ck_assert_uint_eq(type[AT_SIZE], 1);
    memcpy(type + AT_SIZE, &size, sizeof size);
    const uint32_t right = H5_checksum_metadata(root, (size_t)(sum - root), 0);
    memcpy(sum, &right, sizeof right);
    write_bytes(path, bytes, n - SEAL_BYTES);
    free(bytes);
    ck_fails(read_status(path), KVF_EFORMAT, "\"kvfold_kind\" is not a scalar of the right type");
}
END_TEST

START_TEST(bytes_behind_the_end)
{
    size_t n;

    write_sample(in_dir("p.h5"), KVF__F32);
    uint8_t *bytes = read_bytes(in_dir("p.h5"), &n);
    write_bytes(in_dir("long.h5"), bytes, n + 1);
    ck_fails(read_status(in_dir("long.h5")), KVF_EFORMAT, "51 bytes after the end");
    bytes[n - 2] = bytes[n - 2] == '0' ? '1' : '0';
    write_bytes(in_dir("seal.h5"), bytes, n);
    ck_fails(read_status(in_dir("seal.h5")), KVF_EFORMAT, "damaged: the bytes hash to");
    bytes[11] |= 1; /* as HDF5 marks a file while it is open for writing */
    write_bytes(in_dir("open.h5"), bytes, n);
    ck_fails(read_status(in_dir("open.h5")), KVF_EFORMAT, "open.h5: is open for writing elsewhere");
    free(bytes);
}
END_TEST

/* ---- errors: wrong content ------------------------------------------------------------------- */

/* A prefix file as the writer would make it, with one error; zero members are correct. */
typedef struct craft {
    const char *line; /* part of the error line; NULL: no error */
    kvf_status status;
    const char *skip; /* attribute left out */
    const char *kind;
    int64_t position_start;
    int rank;
    int64_t dim[6];
    kvf__dtype dtype;
    const char *dtype_text;
    int64_t mask_length;
    uint8_t mask_value;
    const char *text_as_integer; /* attribute written as an integer */
    const char *more[2];         /* a name and a text */
    int64_t claims[4];           /* L, G, P, D as attributes */
} craft;

static const int64_t SHAPE[6] = {2, 2, 1, 1, 4, 2};

#define MISSING(name)                                                                              \
    {                                                                                              \
        "attribute \"" name "\" is missing", KVF_EFORMAT, .skip = name                             \
    }

#define T70 "a text of seventy bytes, of which four hundred are the most that fit.."

static const craft CRAFTED[] = {
    {.status = KVF_OK},
    MISSING("base_name"),
    MISSING("base_architecture"),
    MISSING("base_hash"),
    MISSING("method"),
    MISSING("task"),
    MISSING("chat_template"),
    MISSING("position_start"),
    MISSING("layer_mask"),
    MISSING("dtype"),
    {"is a run file (kvfold_kind), want a prefix file", KVF_EFORMAT, .kind = "run"},
    {"position_start is -1", KVF_EFORMAT, .position_start = -1},
    {"\"layer_mask\" is not a list of 2 bytes", KVF_EFORMAT, .mask_length = 3},
    {"layer_mask[0] is 2", KVF_EFORMAT, .mask_value = 2},
    {"\"task\" is not a scalar of the right type, want variable", KVF_EFORMAT,
     .text_as_integer = "task"},
    {"attribute dtype is \"f16\", but the values are f32", KVF_EFORMAT, .dtype_text = "f16"},
    {"element type i64", KVF_EFORMAT, .dtype = KVF__I64},
    {"element type f64", KVF_EFORMAT, .dtype = KVF__F64},
    {"shape [2, 2, 1, 1, 4]", KVF_ESHAPE, .rank = 5},
    {"shape [2, 3, 1, 1, 4, 2]", KVF_ESHAPE, .dim = {2, 3, 1, 1, 4, 2}},
    {"shape [2, 2, 2, 1, 4, 2]", KVF_ESHAPE, .dim = {2, 2, 2, 1, 4, 2}},
    {"0 values, want 8 for each of 0 tokens", KVF_ESHAPE, .dim = {2, 2, 1, 1, 0, 2}},
    {"key_space is \"pre-rope\" without the feature infix", KVF_EFORMAT,
     .more = {"key_space", "pre-rope"}},
    {"relative_bias is \"decoder\" without encoder_layers", KVF_EFORMAT,
     .more = {"relative_bias", "decoder"}},
    /* values whose count contradicts other fields: no memory is allocated for the claimed count */
    {"rank 1, want 6", KVF_ESHAPE, .rank = 1, .dim = {4096}, .claims = {2, 1, 1, 1}},
    {"rank 1, want 6", KVF_ESHAPE, .rank = 1, .dim = {8}, .claims = {2, 8, 64, 64}},
    {"rank 1, want 6", KVF_ESHAPE, .rank = 1, .dim = {8}, .claims = {2, 1 << 30, 1 << 30, 1 << 30}},
    {"rank 1, want 6", KVF_ESHAPE, .rank = 1, .dim = {256}, .dtype = KVF__F16, .dtype_text = "f16",
     .claims = {2, 8, 64, 64}},
    {"relative_bias is \"encoder\", want \"decoder\" or none", KVF_EFORMAT,
     .more = {"relative_bias", "encoder"}},
    {.status = KVF_OK, .more = {"row_form", "chat"}},
    {"/prefix/past_key_values: row_form is \"verse\", want text, pairs or chat", KVF_EFORMAT,
     .more = {"row_form", "verse"}},
    {"row_form is \"\", want text, pairs or chat", KVF_EFORMAT, .more = {"row_form", ""}},
    {"example_prompt has 420 bytes, want at most 400", KVF_EFORMAT,
     .more = {"example_prompt", T70 T70 T70 T70 T70 T70}},
};

static void put_text(kvf__h5 *h5, kvf__h5_id at, const craft *c, const char *name, const char *text)
{
    if (c->skip && !strcmp(c->skip, name)) return;
    if (c->text_as_integer && !strcmp(c->text_as_integer, name))
        kvf__h5_put_i64(h5, at, name, 1);
    else
        kvf__h5_put_text(h5, at, name, text);
}

static bool has(const craft *c, const char *name)
{
    return !c->skip || strcmp(c->skip, name) != 0;
}

static void write_crafted(const char *path, const craft *c)
{
    static const uint8_t zeros[1 << 14];
    const kvf__h5_spec spec = {.name = "past_key_values",
                               .dtype = c->dtype,
                               .rank = c->rank ? c->rank : 6,
                               .dim = c->dim[0] ? c->dim : SHAPE};
    const uint8_t mask[3] = {c->mask_value ? c->mask_value : 1, 1, 1};
    kvf__h5 h5;
    kvf__h5_id group, data;

    h5 = kvf__h5_create(ctx, path, true, c->kind ? c->kind : "prefix", 0);
    group = kvf__h5_group_create(&h5, h5.file, "prefix");
    kvf__h5_data_write(&h5, group, &spec, zeros, &data);
    put_text(&h5, h5.file, c, "base_name", "b");
    put_text(&h5, h5.file, c, "base_architecture", "llama");
    put_text(&h5, h5.file, c, "base_hash", "");
    put_text(&h5, data, c, "method", "mlp");
    put_text(&h5, data, c, "task", "lm");
    put_text(&h5, data, c, "chat_template", "none");
    put_text(&h5, data, c, "dtype", c->dtype_text ? c->dtype_text : "f32");
    if (c->more[0]) kvf__h5_put_text(&h5, data, c->more[0], c->more[1]);
    for (int i = 0; c->claims[0] && i < 4; i++)
        kvf__h5_put_i64(&h5, data, (const char[]){"LGPD"[i], 0}, c->claims[i]);
    if (has(c, "position_start"))
        kvf__h5_put_i64(&h5, data, "position_start", c->position_start ? c->position_start : 4);
    if (has(c, "layer_mask"))
        kvf__h5_put_u8s(&h5, data, "layer_mask", mask, c->mask_length ? c->mask_length : 2);
    kvf__h5_release(&data);
    kvf__h5_release(&group);
    ck_ok(kvf__h5_close(&h5));
}

START_TEST(wrong_content)
{
    const craft *c = &CRAFTED[_i];

    write_crafted(in_dir("p.h5"), c);
    if (c->line)
        ck_fails(read_status(in_dir("p.h5")), c->status, c->line);
    else
        ck_ok(read_status(in_dir("p.h5")));
}
END_TEST

START_TEST(another_format)
{
    kvf__h5 h5;

    h5 = kvf__h5_create(ctx, in_dir("p.h5"), false, "prefix", 0);
    ck_ok(kvf__h5_close(&h5));
    ck_fails(read_status(in_dir("p.h5")), KVF_EFORMAT, "group \"prefix\" is missing");
    ck_fails(read_status(in_dir("none.h5")), KVF_EIO, "none.h5");
    write_bytes(in_dir("text.h5"), "hello, this is no HDF5 file", 27);
    ck_fails(read_status(in_dir("text.h5")), KVF_EFORMAT, "text.h5: not an HDF5 file");
    ck_fails(read_status(dir), KVF_EIO, "is a folder");
}
END_TEST

/* The first failure is kept, later calls do nothing, and no file remains. */
START_TEST(the_first_failure_is_kept)
{
    kvf__h5 h5 = kvf__h5_create(ctx, in_dir("p.h5"), false, "prefix", 0);
    kvf__h5_id group = kvf__h5_group_create(&h5, h5.file, "prefix");
    size_t n = 7;

    ck_assert_ptr_null(kvf__h5_get_text(&h5, group, "missing"));
    ck_assert_int_eq(h5.status, KVF_EFORMAT);
    ck_assert_int_eq(kvf__h5_group_create(&h5, h5.file, "other"), KVF__H5_NONE);
    ck_assert(!kvf__h5_has(&h5, h5.file, "prefix"));
    ck_assert_uint_eq(kvf__h5_child_count(&h5, h5.file), 0);
    ck_assert_ptr_null(kvf__h5_texts_read(&h5, group, "labels", &n));
    ck_assert_int_eq(kvf__h5_data_open(&h5, group, "values").id, KVF__H5_NONE);
    kvf__h5_put_i64(&h5, group, "late", 1);
    kvf__h5_fail(&h5, group, KVF_EUSAGE, "a later failure");
    kvf__h5_release(&group);
    ck_fails(kvf__h5_close(&h5), KVF_EFORMAT, "/prefix: attribute \"missing\" is missing");
    ck_assert_int_eq(files_in_dir(), 0);
}
END_TEST

/* ---- golden: h5py's files -------------------------------------------------------------------- */

typedef struct golden {
    const char *name;
    kvf__dtype dtype;
    kvf_status status;
    const char *line;
} golden;

static const golden GOLDEN[] = {
    {"h5_v108.h5", KVF__F32, KVF_OK, NULL},
    {"h5_v110.h5", KVF__F32, KVF_OK, NULL},
    {"h5_f16.h5", KVF__F16, KVF_OK, NULL},
    {"h5_gzip.h5", KVF__F32, KVF_OK, NULL},
    {"h5_edited.h5", KVF__F32, KVF_OK, NULL},
    {"h5_v0.h5", 0, KVF_EUNSUPPORTED, "superblock version 0 (h5py's default"},
    {"h5_v0.h5", 0, KVF_EUNSUPPORTED, "libver=(\"v108\", \"v108\")"},
    {"h5_weighted.h5", KVF__F32, KVF_OK, NULL},
    {"h5_weighted_shape.h5", 0, KVF_ESHAPE,
     "/prefix/log_weight: [2, 4, 2] of f32, want [2, 2, 4] of f32"},
    {"h5_feature_unknown.h5", 0, KVF_EUNSUPPORTED,
     "needs feature \"sparse-keys\", which this kvfold does not know; use a newer kvfold"},
    {"h5_feature_unused.h5", 0, KVF_EFORMAT,
     "/features has \"log-weight\", which the file does not use"},
    {"h5_feature_unlisted.h5", 0, KVF_EFORMAT,
     "/features lacks \"log-weight\", which the file uses"},
    {"h5_heads.h5", KVF__F32, KVF_OK, NULL},
    {"h5_heads_few.h5", 0, KVF_ESHAPE, "256 values, want 48 for each of 4 tokens"},
    {"h5_heads_zero.h5", 0, KVF_ESHAPE, "256 values, want 32 for each of 4 tokens"},
    {"h5_heads_layers.h5", 0, KVF_EFORMAT, "/heads_by_layer has 2 layers, want 3"},
    {"h5_heads_shape.h5", 0, KVF_EFORMAT, "/heads_by_layer has 2 layers"},
    {"h5_format2.h5", 0, KVF_EUNSUPPORTED, "kvfold_format is 2, want 1"},
    {"h5_f64.h5", 0, KVF_EFORMAT, "element type f64, want f32, f16, bf16 or i8"},
    {"h5_big_endian.h5", 0, KVF_EFORMAT,
     "unknown element type (class 1, 4 bytes), want little-endian"},
    {"h5_lzf.h5", 0, KVF_EUNSUPPORTED, "filter 0 (id 32000)"},
    {"h5_soft.h5", 0, KVF_EFORMAT, "\"past_key_values\" is a soft link, want the dataset itself"},
    {"h5_external_link.h5", 0, KVF_EFORMAT, "\"past_key_values\" is an external link"},
    {"h5_external.h5", 0, KVF_EFORMAT, "in another file (external storage), refused"},
    {"h5_virtual.h5", 0, KVF_EFORMAT, "in other datasets (virtual storage), refused"},
    {"h5_unfilled.h5", 0, KVF_EFORMAT, "claims 4398046511104 bytes of values, but 0 are stored"},
    {"h5_unfilled_chunked.h5", 0, KVF_EFORMAT, "claims 4398046511104 bytes of values, but 0 are"},
    {"h5_zeros.h5", 0, KVF_EFORMAT,
     "/prefix/past_key_values: reading needs 43008006 bytes of memory"},
    {"h5_plain.h5", 0, KVF_EFORMAT,
     "not a kvfold file: HDF5, but without the attribute kvfold_kind"},
};

START_TEST(made_by_h5py)
{
    const golden *g = &GOLDEN[_i];
    kvf__artifact file = {0};
    char name[128];

    snprintf(name, sizeof name, "tests/golden/%s", g->name);
    if (g->status) {
        ck_fails(kvf__artifact_read(ctx, ck_source(name), KVF__KIND_PREFIX, &file), g->status,
                 g->line);
        return;
    }
    ck_ok(kvf__artifact_read(ctx, ck_source(name), KVF__KIND_PREFIX, &file));
    ck_assert_int_eq(file.dtype, g->dtype);
    const bool heads = strstr(g->name, "heads") != NULL;
    ck_assert(file.id.L == 2 && file.id.P == 4 && !file.id.heads == !heads);
    ck_assert(heads || (file.id.G == 2 && file.id.D == 8));
    if (heads) {
        const kvf__prefix_layer last = kvf__prefix_at(&file.prefix, 1);
        ck_assert(last.G == 1 && last.D == 16 && last.n == 64 && last.k == file.prefix.kv + 128);
    }
    ck_assert_int_eq(file.id.position_start, 4);
    for (size_t i = 0; i < kvf__prefix_count(&file.prefix); i++)
        ck_assert(file.prefix.kv[i] == (float)i / 64 - 2);
    ck_json_eq(file.options, "{\"lr\":0.5,\"method\":\"direct\",\"shuffle\":true,\"steps\":7}");
    ck_assert(!file.prefix.log_weight == !strstr(g->name, "weighted"));
    for (int i = 0; file.prefix.log_weight && i < 2 * 2 * 4; i++)
        ck_assert(file.prefix.log_weight[i] == (float)i / 8 - 1);
    ck_assert_ptr_null(file.lineage);
    bool edited = strcmp(g->name, "h5_edited.h5") == 0;
    ck_assert_str_eq(file.id.base_name, edited ? "renamed base" : "tiny");
    ck_assert_str_eq(file.id.method, edited ? "mlp" : "direct");
    kvf__artifact_done(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix_file");
    TCase *core = ck_case(suite, "core", setup, teardown, 60);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 60);
    TCase *gold = ck_case(suite, "golden", setup, teardown, 60);

    tcase_add_loop_test(core, round_trip, 0, 4);
    tcase_add_loop_test(core, equal_content_equal_bytes, 0, 4);
    tcase_add_test(core, a_state_is_kept);
    tcase_add_test(core, no_items_is_not_empty_items);
    tcase_add_test(core, tells_its_kind);
    tcase_add_test(core, layout_is_as_documented);
    tcase_add_loop_test(core, weighted_round_trip, 0, 4);
    tcase_add_loop_test(core, by_layer_round_trip, 0, 4);
    tcase_add_loop_test(limits, bad_log_weights, 0, 3);
    tcase_add_test(limits, refuses_to_write);
    tcase_add_test(limits, keeps_an_existing_file);
    tcase_add_test(limits, allocation_failures);
    tcase_add_loop_test(errors, another_at_the_path, 0, sizeof SWAPS / sizeof SWAPS[0]);
    tcase_add_test(errors, truncated_anywhere);
    tcase_add_test(errors, flipped_anywhere);
    tcase_add_test(errors, flipped_without_a_seal);
    tcase_add_test(errors, flipped_heap_without_a_seal);
    tcase_add_test(errors, wide_characters);
    tcase_add_test(errors, bytes_behind_the_end);
    tcase_add_loop_test(errors, wrong_content, 0, sizeof CRAFTED / sizeof CRAFTED[0]);
    tcase_add_test(errors, another_format);
    tcase_add_test(errors, the_first_failure_is_kept);
    tcase_add_loop_test(gold, made_by_h5py, 0, sizeof GOLDEN / sizeof GOLDEN[0]);
    return ck_main(suite);
}
