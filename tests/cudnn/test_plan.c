/* Which engine is taken, what is kept of it, and what is said where there is none; with the interpreter in
 * libcudnn's place. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cudnn_graphs.h"
#include "tests/cudnn/interpreter.h"
#include "tests/support/ddp_test.h"

static ddp_cudnn_target_t target;
static ddp_cudnn_cache_t *cache;

static const ddp_cudnn_attention_t shape = {CUDNN_DATA_BFLOAT16, 2, 3, 5, 8, false};

static void open_cache(void)
{
    ddp_interpreter = (ddp_interpreter_t){.workspace = 123};
    ddp_assert_ok(ddp_cudnn_target_open(ddp_interpreter_table(), &target));
    ddp_assert_ok(ddp_cudnn_cache_create(&target, &cache));
}

static void close_cache(void)
{
    ddp_cudnn_cache_destroy(&cache);
    ddp_cudnn_target_close(&target);
    ck_assert_int_eq(ddp_interpreter.descriptors, 0);
}

static ddp_status_t get(const ddp_cudnn_attention_t *attention, unsigned refused,
                        const ddp_cudnn_plan_t **plan_p)
{
    const ddp_cudnn_key_t key = ddp_cudnn_attention_key(DDP_CUDNN_ATTENTION, attention);

    return ddp_cudnn_cache_get(cache, &key, ddp_cudnn_attention_graph, refused, plan_p);
}

START_TEST(plan_is_built_once_for_each_shape_and_type)
{
    const ddp_cudnn_plan_t *first = NULL;
    const ddp_cudnn_plan_t *again = NULL;
    ddp_cudnn_attention_t   other = shape;

    ddp_assert_ok(get(&shape, 0, &first));
    ddp_assert_ok(get(&shape, 0, &again));
    ck_assert_ptr_eq(first, again);
    ck_assert_uint_eq(first->workspace_bytes, 123);
    other.length++;
    ddp_assert_ok(get(&other, 0, &again));
    ck_assert_ptr_ne(first, again);
    other.type = CUDNN_DATA_HALF;
    ddp_assert_ok(get(&other, 0, &again));
    ddp_assert_ok(get(&other, DDP_CUDNN_NOTE(NONDETERMINISTIC), &again));
    ck_assert_int_eq(ddp_interpreter.plans, 4);
    ck_assert_uint_eq(ddp_cudnn_cache_size(cache), 4);
}
END_TEST

START_TEST(engine_with_a_refused_property_is_passed_over)
{
    const ddp_cudnn_plan_t *plan = NULL;

    ddp_interpreter.notes = DDP_CUDNN_NOTE(TENSOR_CORE) | DDP_CUDNN_NOTE(NONDETERMINISTIC);
    ddp_assert_fails(get(&shape, DDP_CUDNN_NOTE(NONDETERMINISTIC), &plan), DDP_ERR_UNSUPPORTED,
                     "properties that are refused");
    ck_assert_int_eq(ddp_interpreter.plans, 0);
    ck_assert_ptr_null(plan);
}
END_TEST

START_TEST(shape_without_a_plan_is_asked_once_and_says_why_each_time)
{
    const ddp_cudnn_plan_t *plan = NULL;

    ddp_interpreter.finalize = CUDNN_STATUS_NOT_SUPPORTED;
    ddp_assert_fails(get(&shape, 0, &plan), DDP_ERR_UNSUPPORTED,
                     "a plan: a failure: said by the interpreter");
    ddp_interpreter.finalize = CUDNN_STATUS_SUCCESS;
    ddp_error_clear();
    ddp_assert_fails(get(&shape, 0, &plan), DDP_ERR_UNSUPPORTED, "said by the interpreter");
    ck_assert_int_eq(ddp_interpreter.plans, 0);
}
END_TEST

START_TEST(engine_with_a_huge_workspace_is_passed_over)
{
    const ddp_cudnn_plan_t *plan = NULL;

    ddp_interpreter.workspace = (int64_t)1 << 40;
    ddp_assert_fails(get(&shape, 0, &plan), DDP_ERR_UNSUPPORTED, "1099511627776 bytes of workspace");
}
END_TEST

START_TEST(execution_uses_the_stream_and_passes_cudnns_error_on)
{
    const ddp_cudnn_plan_t    *plan   = NULL;
    const ddp_cudnn_pointers_t none   = {.count = 0};
    const cudaStream_t         stream = (cudaStream_t)&target;

    ddp_assert_ok(get(&shape, 0, &plan));
    ddp_interpreter.execute = CUDNN_STATUS_EXECUTION_FAILED;
    ddp_assert_fails(ddp_cudnn_plan_execute(&target, plan, &none, NULL, stream), DDP_ERR_DEVICE,
                     "cudnnBackendExecute: a failure: said by the interpreter");
    ck_assert_ptr_eq(ddp_interpreter.stream, stream);
}
END_TEST

START_TEST(device_that_cudnn_does_not_know_has_no_target)
{
    ddp_cudnn_target_t other = {0};

    ddp_interpreter.create = CUDNN_STATUS_NOT_INITIALIZED;
    ddp_assert_fails(ddp_cudnn_target_open(ddp_interpreter_table(), &other), DDP_ERR_UNSUPPORTED,
                     "cudnnCreate: a failure");
    ck_assert_ptr_null(other.handle);
}
END_TEST

START_TEST(library_that_is_not_there_is_one_line)
{
    ddp_cudnn_table_t table = {0};

    ck_assert_int_eq(setenv("DDP_CUDNN_PATH", "/nowhere", 1), 0);
    ddp_assert_fails(ddp_cudnn_table_open(&table), DDP_ERR_UNSUPPORTED, "/nowhere/libcudnn.so.9");
    ck_assert_int_eq(setenv("DDP_CUDNN_PATH", "none", 1), 0);
    ddp_assert_fails(ddp_cudnn_table_open(&table), DDP_ERR_STATE, "DDP_CUDNN_PATH=none");
    ck_assert(table.version == NULL);
    ck_assert_int_eq(unsetenv("DDP_CUDNN_PATH"), 0);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("cudnn plan");
    TCase *tcase = tcase_create("cache");

    tcase_add_checked_fixture(tcase, open_cache, close_cache);
    tcase_add_test(tcase, plan_is_built_once_for_each_shape_and_type);
    tcase_add_test(tcase, engine_with_a_refused_property_is_passed_over);
    tcase_add_test(tcase, shape_without_a_plan_is_asked_once_and_says_why_each_time);
    tcase_add_test(tcase, engine_with_a_huge_workspace_is_passed_over);
    tcase_add_test(tcase, execution_uses_the_stream_and_passes_cudnns_error_on);
    tcase_add_test(tcase, device_that_cudnn_does_not_know_has_no_target);
    tcase_add_test(tcase, library_that_is_not_there_is_one_line);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
